package cluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// runnerLabel marks pods that a planned change never cuts.
const (
	runnerLabelKey   = "actions-ephemeral-runner"
	runnerLabelValue = "True"
)

// PodSpec is a pod for one node.
type PodSpec struct {
	Name string
	Node string
	// Runner gives the pod the label of a runner.
	Runner bool
	Labels map[string]string
	// Owner gives the pod an owner, so that draining it is not refused: its Node, which makes no pod anew.
	Owner bool
	// Grace is how many seconds the pod may take to end; zero for one.
	Grace int64
}

// RunPod makes the pod in the default namespace and waits until it is Running.
func (c *Cluster) RunPod(ctx context.Context, spec PodSpec) error {
	api, err := c.API()
	if err != nil {
		return err
	}
	labels := map[string]string{"app": spec.Name}
	if spec.Runner {
		labels[runnerLabelKey] = runnerLabelValue
	}
	for key, value := range spec.Labels {
		labels[key] = value
	}
	grace := max(1, spec.Grace)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: spec.Name, Labels: labels},
		Spec: corev1.PodSpec{
			NodeName: spec.Node, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "main", Image: image, ImagePullPolicy: corev1.PullIfNotPresent}},
		},
	}
	if spec.Owner {
		node, err := api.CoreV1().Nodes().Get(ctx, spec.Node, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("run pod %s: %w", spec.Name, err)
		}
		controller := true
		pod.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &controller,
		}}
	}
	if _, err := api.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("run pod %s: %w", spec.Name, err)
	}
	return Eventually(ctx, time.Minute, "pod "+spec.Name+" to run", func(ctx context.Context) (bool, string) {
		got, err := api.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, spec.Name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return got.Status.Phase == corev1.PodRunning, fmt.Sprintf("%s %s", got.Status.Phase, got.Status.Reason)
	})
}

// RunRunner makes a runner pod on the node and waits until it is Running.
func (c *Cluster) RunRunner(ctx context.Context, name, node string) error {
	return c.RunPod(ctx, PodSpec{Name: name, Node: node, Runner: true, Owner: true})
}

// PodIsThere says whether the pod exists and is not being ended.
func (c *Cluster) PodIsThere(ctx context.Context, name string) (bool, error) {
	api, err := c.API()
	if err != nil {
		return false, err
	}
	pod, err := api.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("pod %s: %w", name, err)
	}
	return pod.DeletionTimestamp == nil, nil
}

// EndPod deletes the pod as a job does that has ended, and waits until it is gone.
func (c *Cluster) EndPod(ctx context.Context, name string) error {
	api, err := c.API()
	if err != nil {
		return err
	}
	none := int64(0)
	err = api.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &none})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("end pod %s: %w", name, err)
	}
	return nil
}

// Budget makes a disruption budget that wants one pod with this app label, the name of the pod: where there is one, it is not
// evicted. The disruption controller has to have seen the budget, so this waits for that.
func (c *Cluster) Budget(ctx context.Context, name, app string) error {
	api, err := c.API()
	if err != nil {
		return err
	}
	one := intstr.FromInt32(1)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		},
	}
	budgets := api.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault)
	made, err := budgets.Create(ctx, budget, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make budget %s: %w", name, err)
	}
	return Eventually(ctx, time.Minute, "budget "+name+" to be seen", func(ctx context.Context) (bool, string) {
		got, err := budgets.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return got.Status.ObservedGeneration >= made.Generation && len(got.Status.Conditions) > 0, fmt.Sprintf("%+v", got.Status)
	})
}

// DeleteBudget deletes a disruption budget.
func (c *Cluster) DeleteBudget(ctx context.Context, name string) error {
	api, err := c.API()
	if err != nil {
		return err
	}
	if err := api.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete budget %s: %w", name, err)
	}
	return nil
}

package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// AddressesKey holds apiserver addresses in etcd as a JSON list of ip:port (k3s facts §7).
const AddressesKey = "k3s/apiaddresses"

// WriteAddresses copies the kubernetes EndpointSlice to etcd on every change; run by the holder of Lease k3s-etcd.
func WriteAddresses(ctx context.Context, client kubernetes.Interface, put func(ctx context.Context, key string, value []byte) error, log *slog.Logger) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(metav1.NamespaceDefault),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", "kubernetes").String()
		}))
	informer := factory.Discovery().V1().EndpointSlices().Informer()
	write := func(o any) {
		slice, ok := o.(*discoveryv1.EndpointSlice)
		if !ok {
			return
		}
		addresses := AddressesOf(slice)
		b, err := json.Marshal(addresses)
		if err == nil {
			err = put(ctx, AddressesKey, b)
		}
		if err != nil {
			log.Error("Failed to store apiserver addresses", "error", err)
			return
		}
		log.Info("Saving apiserver addresses to etcd", "addresses", addresses)
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    write,
		UpdateFunc: func(_, o any) { write(o) },
	}); err != nil {
		return fmt.Errorf("watch apiserver addresses: %w", err)
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	return nil
}

// AddressesOf lists an EndpointSlice's ready addresses as ip:port, sorted.
func AddressesOf(slice *discoveryv1.EndpointSlice) []string {
	port := 6443
	for _, p := range slice.Ports {
		if p.Port != nil {
			port = int(*p.Port)
		}
	}
	out := []string{}
	for _, e := range slice.Endpoints {
		if e.Conditions.Ready != nil && !*e.Conditions.Ready {
			continue
		}
		for _, a := range e.Addresses {
			out = append(out, net.JoinHostPort(a, strconv.Itoa(port)))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestWhatMayPassIsTransient(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"nothing":                   {nil, false},
		"no answer in time":         {fmt.Errorf("apply: %w", context.DeadlineExceeded), true},
		"no connection":             {fmt.Errorf("list: %w", &net.OpError{Op: "dial", Err: errors.New("refused")}), true},
		"an overloaded one":         {apierrors.NewServiceUnavailable("later"), true},
		"too many requests":         {apierrors.NewTooManyRequests("later", 1), true},
		"a right that lacks":        {apierrors.NewForbidden(corev1.Resource("secrets"), "t", nil), false},
		"an object that is no good": {apierrors.NewBadRequest("spec"), false},
		"somebody else wrote":       {apierrors.NewConflict(corev1.Resource("nodes"), "n1", nil), false},
	} {
		if got := Transient(test.err); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

package kube

import (
	"context"
	"errors"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Transient says whether to ask again may help: no answer in time, no connection, or an API
// server that says it cannot answer now.
func Transient(err error) bool {
	if err == nil {
		return false
	}
	if _, network := errors.AsType[net.Error](err); network || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err)
}

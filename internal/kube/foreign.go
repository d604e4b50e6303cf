package kube

import (
	"crypto/tls"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// foreign says why an answer is none of a Kubernetes API's: a proxy, a captive
// portal or another server has answered in its place. What client-go would say of
// it is that it could not decode something.
func foreign(server string, resp *http.Response) *foreignError {
	kind := resp.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(kind)
	switch {
	case kind != "" && err != nil:
		media = kind
	case media == "application/json", strings.HasPrefix(media, "application/vnd.kubernetes."):
		return nil
	case (media == "text/plain" || media == "") && plain(resp):
		return nil
	}
	if media == "" {
		media = "no content type"
	}
	return &foreignError{server: server, said: resp.Status + ", " + media, passes: resp.StatusCode >= http.StatusInternalServerError}
}

// foreignError is an answer of something that is no Kubernetes.
type foreignError struct {
	server, said string
	// passes: what stands before the API may only have lost it for a moment.
	passes bool
	// only: no other server is known, or none of them is a Kubernetes.
	only bool
	// err is why no answer was asked for; nil where there was one.
	err error
}

func (e *foreignError) Unwrap() error { return e.err }

func (e *foreignError) Error() string {
	if e.err != nil {
		return e.err.Error()
	}
	return fmt.Sprintf("the API at %s answers with something that is no Kubernetes: %s", e.server, e.said)
}

// unknown is a failed request as a foreignError where whoever listens at the address is
// not the API that the configuration knows: its certificate is of another CA or another
// name, has run out, or it speaks no TLS at all. That is what a kubeconfig of another
// cluster looks like. Nil for any other failure, which may pass.
func unknown(server string, err error) *foreignError {
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	if certificate || record || errors.Is(err, http.ErrSchemeMismatch) {
		return &foreignError{server: server, err: err}
	}
	return nil
}

// lasting says whether an error is an answer that nothing but another address mends,
// as far as one server goes.
func lasting(err error) bool {
	f, ok := errors.AsType[*foreignError](err)
	return ok && !f.passes
}

// plain says whether a Kubernetes may answer this in plain text or without a word:
// health checks, a pod's log, and what fails before the API itself is reached.
func plain(resp *http.Response) bool {
	if resp.StatusCode == http.StatusNoContent || resp.StatusCode >= http.StatusBadRequest {
		return true
	}
	return resp.Request != nil && (strings.HasSuffix(resp.Request.URL.Path, "/readyz") || strings.HasSuffix(resp.Request.URL.Path, "/log"))
}

// Denied says in words what the API at server answered when to ask again changes
// nothing: it knows these credentials and refuses them, it does not know them, it is
// another server than the configuration knows, or no Kubernetes at all. An empty server is one that nobody can name.
func Denied(err error, server string) (string, bool) {
	api := at(server)
	switch f, ok := errors.AsType[*foreignError](err); {
	case apierrors.IsUnauthorized(err):
		return api + " does not accept these credentials (401)", true
	case apierrors.IsForbidden(err):
		return api + " does not allow these credentials to do this (403)", true
	case ok && f.only && f.err != nil:
		return "the server at " + f.server + " is not the one that this configuration knows", true
	case ok && f.only && !f.passes:
		return "this is the address of no Kubernetes API", true
	}
	return "", false
}

// Answered is the status with which the API at server answered, in words; empty where
// the error is none of those, which have the address in them.
func Answered(err error, server string) string {
	s, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s answers %d (%s)", at(server), s.ErrStatus.Code, s.ErrStatus.Reason)
}

func at(server string) string {
	if server == "" {
		return "the API"
	}
	return "the API at " + server
}

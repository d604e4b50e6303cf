package kube

import (
	"fmt"
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// foreign says why an answer is none of a Kubernetes API's: a proxy, a captive
// portal or another server has answered in its place. What client-go would say of
// it is that it could not decode something.
func foreign(server string, resp *http.Response) error {
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
	return fmt.Errorf("the API at %s answers with something that is no Kubernetes: %s, %s", server, resp.Status, media)
}

// plain says whether a Kubernetes may answer this in plain text or without a word:
// health checks, and what fails before the API itself is reached.
func plain(resp *http.Response) bool {
	return resp.StatusCode == http.StatusNoContent || resp.StatusCode >= http.StatusBadRequest ||
		resp.Request != nil && strings.HasSuffix(resp.Request.URL.Path, "/readyz")
}

// Denied says in words that the API knows these credentials and refuses them, or
// does not know them: to ask again changes nothing.
func Denied(err error) (string, bool) {
	switch {
	case apierrors.IsUnauthorized(err):
		return "the API does not accept these credentials (401)", true
	case apierrors.IsForbidden(err):
		return "these credentials are not allowed to do this (403)", true
	}
	return "", false
}

// Package manifests renders what is installed in the cluster: namespace,
// service accounts, rights, the controller's Deployment and the host daemons'
// token. Rights are the least that work, by name wherever Kubernetes can do
// that; rights.go says for each what needs it. Objects are plain maps: this
// package imports no Kubernetes type.
package manifests

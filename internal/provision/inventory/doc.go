// Package inventory reads fleet.yaml: the hosts of a fleet and what is wanted of them
// and of regrade. It reads one document and decides what each host is to be told; it
// reaches no host and no cluster.
package inventory

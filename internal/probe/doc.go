// Package probe measures one host, a sample a period, and keeps the last window
// of samples in the host's own key of the ConfigMap of the probes (R-185-01). It
// judges nothing and decides nothing: what is fit is package fitness's to say.
//
// A sample is always taken whole and in memory first. The window is written every
// few periods only, because each write rewrites the whole ConfigMap in etcd; a
// small Lease says each period that the probe goes on (safety rule 29).
package probe

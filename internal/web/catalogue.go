package web

import "github.com/prometheus/client_golang/prometheus"

// catalogue are metrics by name, each with its labels.
type catalogue map[string][]string

// desc describes a metric and enters it.
func (c catalogue) desc(name, help string, labels ...string) *prometheus.Desc {
	if labels == nil {
		labels = []string{}
	}
	c[name] = labels
	return prometheus.NewDesc(name, help, labels, nil)
}

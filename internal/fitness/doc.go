// Package fitness says which hosts deserve a vote: what a probe measures, how
// it is kept, and the verdict with every reason and its numbers (R-185-12).
//
// A Sample is one host's reading of one period. A Window is the samples that are
// kept, and the value of the host's key in the ConfigMap of the probes. Judge
// turns the windows of all hosts into verdicts.
package fitness

// Package chart makes the Helm chart of deploy/chart out of `regrade manifests`: it
// runs the command with one setting changed at a time and writes down what each
// setting changes. So the chart cannot say anything else than the command does.
//
// It is no part of the program: its test writes the chart's files (make generate) and
// holds them to be current, and the tools that make a release read them.
package chart

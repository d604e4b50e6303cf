// Package fleet holds the nouns of regrade and every fixed name: roles,
// levels, swap ids, member ids, labels, annotations, taints, object names and
// exit statuses. Other programs and people's scripts depend on the values, so
// docs/interface.md lists all of them and a test holds that page against this
// package.
//
// The package is pure: no client, clock, file or logger.
package fleet

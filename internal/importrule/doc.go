// Package importrule holds no code, only the test that keeps the rings of
// packages apart (docs/adr/0009-rings.md): imports point inwards, the pure
// packages know no clock, client or file, and each foreign client has one
// package.
//
// A new package is given its ring in rules_test.go; the test fails until it
// has one.
package importrule

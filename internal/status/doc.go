// Package status holds the documents regrade publishes and exchanges: the
// controller's status and request, a host daemon's report, and the record of a
// swap. Each has a JSON Schema in schemas/ and golden files in testdata/;
// field names are an interface (R-D1-08, R-E2-29, R-E2-30, R-228-10).
//
// Parsers are strict about form and lenient about fields they do not know, so
// that an older reader survives a newer writer.
package status

// Protocol is the version of the record and the reports. A record with another
// one holds a swap (safety rule 25).
const Protocol = 1

// MaxDocument is the size above which a document is refused unread. The
// ConfigMaps that carry them hold at most one mebibyte.
const MaxDocument = 256 << 10

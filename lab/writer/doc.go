// Package writer proves that a cluster loses nothing: it writes all the time through the API servers it is given, keeps a
// record of every write that was acknowledged, and reads all of them back in the end.
package writer

// Package deliver carries documents and messages out of the process: to files, web
// servers, GitHub gists, chat and push services, and a program of the operator's. It
// knows what each of them takes, and what each of their answers means; when to try
// again is its callers' to decide.
//
// No request follows a redirect, none outlasts its context, and no error shows more
// of an address than its host: paths and queries of such addresses are secrets
// (safety rule 31).
package deliver

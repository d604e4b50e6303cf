package fitness

import "errors"

// Reader decodes entries and keeps what it has read of those that have not
// changed since: a probe writes every few periods, a controller looks more often.
// The zero Reader is ready. A window it gives is shared: it is not to be changed.
type Reader struct{ read map[string]kept }

type kept struct {
	raw     string
	window  *Window
	problem *EntryError
}

// Read is Decode for one node's entry, as Judge takes it.
func (r *Reader) Read(node, raw string) (*Window, *EntryError) {
	if k, ok := r.read[node]; ok && k.raw == raw {
		return k.window, k.problem
	}
	k := kept{raw: raw}
	w, err := Decode(node, []byte(raw))
	if err == nil {
		k.window = &w
	} else if !errors.As(err, &k.problem) {
		k.problem = &EntryError{Code: CodeEntryMalformed, Sentence: err.Error()}
	}
	if r.read == nil {
		r.read = map[string]kept{}
	}
	r.read[node] = k
	return k.window, k.problem
}

// Keep forgets the nodes that are not among these.
func (r *Reader) Keep(nodes map[string]bool) {
	for node := range r.read {
		if !nodes[node] {
			delete(r.read, node)
		}
	}
}

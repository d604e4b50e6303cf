package kube

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A list of Nodes is read as it comes, one Node at a time, and of a Node that is Ready
// and does not carry a mark nothing is decoded: most of a Node is the images that its
// host has, and of 1,000 Nodes, each with as many as a kubelet names, all that is some
// 15 MB. Numbers of fields are those of the core/v1 API, which is stable
// (k8s.io/api/core/v1/generated.proto).
const (
	// maxNode is the most bytes that one Node may have: the API's own bound of a request
	// is 3 MiB, etcd's 1.5.
	maxNode = 4 << 20
	// readAhead is what is read at a time: the most Nodes fit, and are then not copied.
	readAhead = 64 << 10

	unknownRaw = 2 // runtime.Unknown: the object

	listMetadata, listItems          = 1, 2
	nodeMetadata, nodeStatus         = 1, 3
	metaName, metaDeletion, metaNote = 1, 9, 12
	entryKey                         = 1
	statusCondition                  = 4
	conditionType, conditionStatus   = 1, 2
)

// magic stands before every object that Kubernetes sends in protobuf.
var magic = []byte("k8s\x00")

var errTruncated = errors.New("the answer ends early")

// readNodes gives each Node of a NodeList in protobuf or JSON to f. Of one that is
// Ready, not being deleted and without any of the annotations marks it gives a
// Node with name and Ready condition alone. No Node outlasts its call of f.
func readNodes(r io.Reader, marks []string, f func(*corev1.Node)) error {
	still := corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	return eachNode(r, f, func(raw []byte) error {
		if name, ok := quiet(raw, marks); ok {
			still.Name = name
			f(&still)
			return nil
		}
		var n corev1.Node
		if err := n.Unmarshal(raw); err != nil {
			return fmt.Errorf("decode: %w", err)
		}
		f(&n)
		return nil
	})
}

// eachNode reads a NodeList: each Node of one in protobuf goes to raw as it is, until
// the next, each of one in JSON to whole. A list of several pages is refused: nobody
// asked for one.
func eachNode(r io.Reader, whole func(*corev1.Node), raw func([]byte) error) error {
	b := bufio.NewReaderSize(r, readAhead)
	head, err := b.Peek(len(magic))
	if err != nil {
		return errTruncated
	}
	if !bytes.Equal(head, magic) {
		var list corev1.NodeList
		if err := json.NewDecoder(b).Decode(&list); err != nil {
			return fmt.Errorf("decode: %w", err)
		}
		if list.Kind != "NodeList" {
			return fmt.Errorf("the answer is a %q", list.Kind)
		}
		if list.Continue != "" {
			return errors.New("the answer is one page of several")
		}
		for i := range list.Items {
			whole(&list.Items[i])
		}
		return nil
	}
	_, _ = b.Discard(len(magic))
	s := stream{b: b, left: -1}
	for seen := false; ; {
		field, size, err := s.next()
		if errors.Is(err, io.EOF) && seen {
			return nil
		}
		if errors.Is(err, io.EOF) {
			return errTruncated
		}
		if err != nil {
			return err
		}
		if field != unknownRaw {
			if err := s.skip(size); err != nil {
				return err
			}
			continue
		}
		if err := s.list(size, raw); err != nil {
			return err
		}
		seen = true
	}
}

// stream reads the fields of a message as they come.
type stream struct {
	b    *bufio.Reader
	left int64 // bytes of the message, negative for up to the end
	buf  []byte
}

// next is the number of the next field and the length of what it holds: of a number
// zero, for it has been read. io.EOF ends the message.
func (s *stream) next() (field uint64, size int64, err error) {
	if s.left == 0 {
		return 0, 0, io.EOF
	}
	if s.left < 0 {
		if _, err := s.b.Peek(1); errors.Is(err, io.EOF) {
			return 0, 0, io.EOF
		}
	}
	tag, err := s.uvarint()
	if err != nil {
		return 0, 0, err
	}
	switch tag & 7 {
	case 0:
		_, err = s.uvarint()
		return tag >> 3, 0, err
	case 2:
		n, err := s.uvarint()
		if err != nil {
			return 0, 0, err
		}
		if n > 1<<40 || s.left >= 0 && int64(n) > s.left {
			return 0, 0, errTruncated
		}
		return tag >> 3, int64(n), nil
	case 1:
		return tag >> 3, 0, s.skip(8)
	case 5:
		return tag >> 3, 0, s.skip(4)
	}
	return 0, 0, fmt.Errorf("a field of kind %d", tag&7)
}

func (s *stream) uvarint() (uint64, error) {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		c, err := s.b.ReadByte()
		if err != nil {
			return 0, ended(err)
		}
		if s.left == 0 {
			return 0, errTruncated
		}
		if s.left > 0 {
			s.left--
		}
		if v |= uint64(c&0x7f) << shift; c < 0x80 {
			return v, nil
		}
	}
	return 0, errors.New("a number that is too large")
}

func (s *stream) skip(n int64) error {
	if s.left >= 0 && n > s.left {
		return errTruncated
	}
	for rest := n; rest > 0; {
		step := min(rest, 1<<30)
		if _, err := s.b.Discard(int(step)); err != nil {
			return ended(err)
		}
		rest -= step
	}
	if s.left > 0 {
		s.left -= n
	}
	return nil
}

// read is the next n bytes, until the next read.
func (s *stream) read(n int64) ([]byte, error) {
	if n > maxNode || s.left >= 0 && n > s.left {
		return nil, fmt.Errorf("a part of %d bytes", n)
	}
	if s.left > 0 {
		s.left -= n
	}
	if n <= readAhead {
		raw, err := s.b.Peek(int(n))
		if err != nil {
			return nil, ended(err)
		}
		_, err = s.b.Discard(int(n)) // what was peeked at stays until the next read
		return raw, err
	}
	if int64(cap(s.buf)) < n {
		s.buf = make([]byte, n, n+n/2)
	}
	s.buf = s.buf[:n]
	if _, err := io.ReadFull(s.b, s.buf); err != nil {
		return nil, ended(err)
	}
	return s.buf, nil
}

// ended: what ends in the middle has not come whole. Another error is the
// connection's own.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errTruncated
	}
	return err
}

func (s *stream) list(size int64, one func([]byte) error) error {
	rest := s.left
	if rest > 0 {
		rest -= size
	}
	s.left = size
	for {
		field, n, err := s.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if field != listItems && field != listMetadata {
			if err := s.skip(n); err != nil {
				return err
			}
			continue
		}
		raw, err := s.read(n)
		if err != nil {
			return err
		}
		if field == listMetadata {
			var meta metav1.ListMeta
			if err := meta.Unmarshal(raw); err != nil {
				return fmt.Errorf("decode: %w", err)
			}
			if meta.Continue != "" {
				return errors.New("the answer is one page of several")
			}
			continue
		}
		if err := one(raw); err != nil {
			return err
		}
	}
	s.left = rest
	return nil
}

// quiet is the name of a Node that is Ready, not being deleted and without any
// of the annotations marks. It says no of all that it does not understand.
func quiet(raw []byte, marks []string) (name string, ok bool) {
	ready, metas := false, 0
	m := message(raw)
	for m.more() {
		field, value, ok := m.next()
		if !ok {
			return "", false
		}
		switch field {
		case nodeMetadata:
			metas++
			meta := message(value)
			for meta.more() {
				field, value, ok := meta.next()
				switch {
				case !ok, field == metaDeletion, field == metaNote && entry(value, marks):
					return "", false
				case field == metaName:
					name = string(value)
				}
			}
		case nodeStatus:
			status := message(value)
			for status.more() {
				field, value, ok := status.next()
				if !ok {
					return "", false
				}
				if field != statusCondition {
					continue
				}
				is, well := condition(value)
				if is && !well {
					return "", false
				}
				ready = ready || is
			}
		}
	}
	return name, ready && metas == 1 && name != ""
}

// entry says whether the entry of a map may have one of those keys.
func entry(raw []byte, keys []string) bool {
	m := message(raw)
	seen := false
	for m.more() {
		field, value, ok := m.next()
		if !ok || field == entryKey && slices.ContainsFunc(keys, func(key string) bool { return string(value) == key }) {
			return true
		}
		seen = seen || field == entryKey
	}
	return !seen
}

// condition says whether it may be the Ready one, and then whether it is True.
func condition(raw []byte) (ready, well bool) {
	m := message(raw)
	types, statuses := 0, 0
	for m.more() {
		field, value, ok := m.next()
		if !ok {
			return true, false
		}
		switch field {
		case conditionType:
			types++
			ready = string(value) == string(corev1.NodeReady)
		case conditionStatus:
			statuses++
			well = string(value) == string(corev1.ConditionTrue)
		}
	}
	if types != 1 || statuses != 1 {
		return true, false
	}
	return ready, well
}

// message is what is left of one in memory.
type message []byte

func (m *message) more() bool { return len(*m) > 0 }

// next is the next field; the value of a number is nil. Anything but a well-formed
// field is not ok.
func (m *message) next() (field uint64, value []byte, ok bool) {
	tag, n := uvarint(*m)
	if n <= 0 || tag>>3 == 0 {
		return 0, nil, false
	}
	rest := (*m)[n:]
	size, n := uvarint(rest)
	if n <= 0 {
		return 0, nil, false
	}
	switch rest = rest[n:]; tag & 7 {
	case 0:
		*m = rest
		return tag >> 3, nil, true
	case 2:
		if size > uint64(len(rest)) {
			return 0, nil, false
		}
		*m = rest[size:]
		return tag >> 3, rest[:size], true
	}
	return 0, nil, false
}

// uvarint is binary.Uvarint, with a short way for the one byte that most numbers have and
// the two of most lengths.
func uvarint(b []byte) (uint64, int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	if len(b) > 1 && b[1] < 0x80 {
		return uint64(b[0]&0x7f) | uint64(b[1])<<7, 2
	}
	return binary.Uvarint(b)
}

package sim

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
)

// writer writes values of a type, worked out once from the type.
type writer struct{ write func(unsafe.Pointer) }

func (c *canon) writerOf(t reflect.Type) func(unsafe.Pointer) {
	w := c.writers[t]
	if w == nil {
		w = &writer{}
		c.writers[t] = w // a type may hold itself
		w.write = c.compile(t)
	}
	if w.write == nil {
		return func(p unsafe.Pointer) { w.write(p) }
	}
	return w.write
}

func (c *canon) compile(t reflect.Type) func(unsafe.Pointer) {
	if t == reflect.TypeFor[time.Time]() {
		return func(p unsafe.Pointer) { c.age(*(*time.Time)(p)) }
	}
	if t == reflect.TypeFor[hostapi.Node]() {
		return c.node
	}
	switch t.Kind() {
	case reflect.Pointer:
		if t == reflect.TypeFor[*World]() {
			return func(unsafe.Pointer) {}
		}
		elem := c.writerOf(t.Elem())
		return func(p unsafe.Pointer) {
			to := *(*unsafe.Pointer)(p)
			if to == nil {
				c.word("nil")
				return
			}
			elem(to)
		}
	case reflect.Interface:
		return func(p unsafe.Pointer) {
			v := at(p, t)
			if v.IsNil() {
				c.word("nil")
				return
			}
			c.writerOf(v.Elem().Type())(addressable(v.Elem()).Addr().UnsafePointer())
		}
	case reflect.Struct:
		return c.fields(t)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return func(p unsafe.Pointer) { c.document(string(*(*[]byte)(p))) }
		}
		size, elem := t.Elem().Size(), c.writerOf(t.Elem())
		return func(p unsafe.Pointer) {
			s := *(*[]struct{})(p) // its length, whatever its elements are
			c.number(uint64(len(s)))
			for i := range s {
				elem(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s)), uintptr(i)*size))
			}
		}
	case reflect.Array:
		size, elem := t.Elem().Size(), c.writerOf(t.Elem())
		return func(p unsafe.Pointer) {
			for i := range t.Len() {
				elem(unsafe.Add(p, uintptr(i)*size))
			}
		}
	case reflect.Map:
		return c.maps(t)
	case reflect.String:
		return func(p unsafe.Pointer) { c.document(*(*string)(p)) }
	case reflect.Bool:
		return func(p unsafe.Pointer) { c.buf = append(c.buf, *(*byte)(p)) }
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return func(p unsafe.Pointer) { c.number(uint64(at(p, t).Int())) }
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return func(p unsafe.Pointer) { c.number(at(p, t).Uint()) }
	case reflect.Func, reflect.Chan:
		return func(unsafe.Pointer) {}
	}
	return func(unsafe.Pointer) { panic("canon: " + t.String()) }
}

func (c *canon) fields(t reflect.Type) func(unsafe.Pointer) {
	type field struct {
		at    uintptr
		write func(unsafe.Pointer)
	}
	var kept []field
	for i := range t.NumField() {
		f := t.Field(i)
		name := t.Name() + "." + f.Name
		if !c.skip[name] {
			kept = append(kept, field{f.Offset, c.within(name, c.writerOf(f.Type))})
		}
	}
	return func(p unsafe.Pointer) {
		for _, f := range kept {
			f.write(unsafe.Add(p, f.at))
		}
	}
}

// within writes what has a bound of its own.
func (c *canon) within(name string, write func(unsafe.Pointer)) func(unsafe.Pointer) {
	bound, known := longLived[name]
	if !known {
		return write
	}
	return func(p unsafe.Pointer) {
		before := c.oldest
		c.oldest = bound
		write(p)
		c.oldest = before
	}
}

// maps are written in the order of their keys.
func (c *canon) maps(t reflect.Type) func(unsafe.Pointer) {
	text := t.Key().Kind() == reflect.String
	elem := c.writerOf(t.Elem())
	if t == reflect.TypeFor[map[string]string]() {
		return func(p unsafe.Pointer) {
			m := *(*map[string]string)(p)
			c.number(uint64(len(m)))
			for _, key := range sortedKeys(m) {
				c.word(key)
				if bound, known := longLived["map."+key]; known {
					c.oldest = bound
				}
				c.document(m[key])
				c.oldest = oldest
			}
		}
	}
	return func(p unsafe.Pointer) {
		v := at(p, t)
		c.number(uint64(v.Len()))
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int {
			if text {
				return strings.Compare(a.String(), b.String())
			}
			return cmp.Compare(a.Uint(), b.Uint())
		})
		for _, key := range keys {
			if text {
				c.word(key.String())
			} else {
				c.number(key.Uint())
			}
			elem(addressable(v.MapIndex(key)).Addr().UnsafePointer())
		}
	}
}

// node is a Node as a daemon keeps it for a beat: what a daemon reads of it.
func (c *canon) node(p unsafe.Pointer) {
	n := (*hostapi.Node)(p)
	c.word(n.Name)
	c.word(n.Annotations[c.w.cfg.Keys.Swap()])
	c.word(n.Labels[fleet.LabelEtcd])
	if n.Ready {
		c.word("ready")
	}
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

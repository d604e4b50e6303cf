package sim

import (
	"reflect"
	"unsafe"
)

// frozen is a whole system at a moment: what every process keeps and the world
// they act on. The objects that others point to (anchors) stay where they are and
// get their contents back; all below them is copied, whatever it is, so that a
// field that somebody adds is not forgotten.
type frozen struct {
	at       []reflect.Value // pointers to anchors
	contents []reflect.Value
}

type freezer struct {
	anchor func(reflect.Type) bool
	flat   map[reflect.Type]bool // types that hold no pointer to anything that changes
}

// freeze copies all that is reached from the roots, which are pointers to anchors.
func (z *freezer) freeze(roots ...any) frozen {
	var f frozen
	seen := map[unsafe.Pointer]bool{}
	var queue []reflect.Value
	found := func(p reflect.Value) {
		if at := p.UnsafePointer(); !seen[at] {
			seen[at] = true
			queue = append(queue, p)
		}
	}
	for _, r := range roots {
		found(reflect.ValueOf(r))
	}
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		c := reflect.New(p.Type().Elem()).Elem()
		z.copy(c, p.Elem(), found)
		f.at, f.contents = append(f.at, p), append(f.contents, c)
	}
	return f
}

// thaw puts everything back as it was. What was frozen can be thawed again.
func (z *freezer) thaw(f frozen) {
	for i, p := range f.at {
		z.copy(p.Elem(), f.contents[i], func(reflect.Value) {})
	}
}

// settable is a value whose fields may be written, exported or not.
func settable(v reflect.Value) reflect.Value {
	if v.CanSet() || !v.CanAddr() {
		return v
	}
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
}

func (z *freezer) copy(dst, src reflect.Value, found func(reflect.Value)) {
	dst, src = settable(dst), settable(src)
	if z.isFlat(src.Type()) {
		dst.Set(src)
		return
	}
	switch src.Kind() {
	case reflect.Pointer:
		switch {
		case src.IsNil():
			dst.SetZero()
		case z.anchor(src.Type().Elem()):
			found(src)
			dst.Set(src)
		default:
			n := reflect.New(src.Type().Elem())
			z.copy(n.Elem(), src.Elem(), found)
			dst.Set(n)
		}
	case reflect.Interface:
		if src.IsNil() {
			dst.SetZero()
			return
		}
		n := reflect.New(src.Elem().Type()).Elem()
		from := reflect.New(src.Elem().Type()).Elem()
		from.Set(src.Elem())
		z.copy(n, from, found)
		dst.Set(n)
	case reflect.Struct:
		for i := range src.NumField() {
			z.copy(dst.Field(i), src.Field(i), found)
		}
	case reflect.Slice:
		if src.IsNil() {
			dst.SetZero()
			return
		}
		n := reflect.MakeSlice(src.Type(), src.Len(), src.Len())
		if z.isFlat(src.Type().Elem()) {
			reflect.Copy(n, src)
		} else {
			for i := range src.Len() {
				z.copy(n.Index(i), src.Index(i), found)
			}
		}
		dst.Set(n)
	case reflect.Array:
		for i := range src.Len() {
			z.copy(dst.Index(i), src.Index(i), found)
		}
	case reflect.Map:
		if src.IsNil() {
			dst.SetZero()
			return
		}
		n := reflect.MakeMapWithSize(src.Type(), src.Len())
		flat := z.isFlat(src.Type().Elem())
		for it := src.MapRange(); it.Next(); {
			if flat {
				n.SetMapIndex(it.Key(), it.Value())
				continue
			}
			from := reflect.New(src.Type().Elem()).Elem()
			from.Set(it.Value())
			to := reflect.New(src.Type().Elem()).Elem()
			z.copy(to, from, found)
			n.SetMapIndex(it.Key(), to)
		}
		dst.Set(n)
	default: // functions and channels are the same for all moments
		dst.Set(src)
	}
}

// isFlat: a plain copy is a whole copy. Strings never change; a time's zone
// neither.
func (z *freezer) isFlat(t reflect.Type) bool {
	if f, known := z.flat[t]; known {
		return f
	}
	z.flat[t] = false // while a type that holds itself is looked at
	f := false
	switch t.Kind() {
	case reflect.Pointer:
		f = t.Elem().PkgPath() == "log/slog"
	case reflect.Interface, reflect.Slice, reflect.Map:
	case reflect.Struct:
		f = true
		if t.PkgPath() != "time" {
			for i := range t.NumField() {
				f = f && z.isFlat(t.Field(i).Type)
			}
		}
	case reflect.Array:
		f = z.isFlat(t.Elem())
	default:
		f = true
	}
	z.flat[t] = f
	return f
}

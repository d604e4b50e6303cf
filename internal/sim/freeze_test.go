package sim

import (
	"reflect"
	"unsafe"
)

// freezer keeps a whole system at a moment: what every process keeps and the
// world they act on. The objects that others point to (anchors) stay where they are
// and get their contents back; all below them is copied, whatever it is, so that a
// field that somebody adds is not forgotten. How a type is copied is worked out once,
// from the type, and not at each copy.
type freezer struct {
	anchor func(reflect.Type) bool
	plans  map[reflect.Type]*plan
	// forgotten are fields that no pass reads: they keep what they have.
	forgotten map[string]bool
	parts     []part
}

// part is a part of the system, by its anchors, and what was frozen that it still
// is: nil once it may have changed.
type part struct {
	anchors []standing
	is      *frozen
}

// standing is an anchor: an object that stays where it is.
type standing struct {
	at   unsafe.Pointer
	plan *plan
}

// frozen is what a part of the system was at a moment, by its anchors. Nobody
// changes it, so that moments may share it.
type frozen struct{ contents []unsafe.Pointer }

// plan is how values of a type are copied.
type plan struct {
	t    reflect.Type
	flat bool // a plain copy is a whole copy
	copy func(dst, src unsafe.Pointer)
}

func newFreezer(anchor func(reflect.Type) bool, forgotten ...string) *freezer {
	z := &freezer{anchor: anchor, plans: map[reflect.Type]*plan{}, forgotten: map[string]bool{}}
	for _, f := range forgotten {
		z.forgotten[f] = true
	}
	return z
}

// part makes what is reached from the roots, and from no part before, a part of its
// own. Anchors are made when a system is, never later.
func (z *freezer) part(roots ...any) {
	known := map[unsafe.Pointer]bool{}
	for _, p := range z.parts {
		for _, s := range p.anchors {
			known[s.at] = true
		}
	}
	var anchors []standing
	var find func(reflect.Value)
	find = func(v reflect.Value) {
		switch v = settable(v); v.Kind() {
		case reflect.Pointer:
			if v.IsNil() || known[v.UnsafePointer()] {
				return
			}
			if z.anchor(v.Type().Elem()) {
				known[v.UnsafePointer()] = true
				anchors = append(anchors, standing{v.UnsafePointer(), z.planOf(v.Type().Elem())})
			}
			find(v.Elem())
		case reflect.Interface:
			if !v.IsNil() {
				find(addressable(v.Elem()))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				find(v.Field(i))
			}
		case reflect.Slice, reflect.Array:
			for i := range v.Len() {
				find(v.Index(i))
			}
		case reflect.Map:
			for it := v.MapRange(); it.Next(); {
				find(addressable(it.Value()))
			}
		}
	}
	for _, r := range roots {
		find(reflect.ValueOf(r))
	}
	z.parts = append(z.parts, part{anchors: anchors})
}

// freeze copies a part, unless it still is what was frozen before.
func (z *freezer) freeze(i int) *frozen {
	p := &z.parts[i]
	if p.is != nil {
		return p.is
	}
	f := &frozen{make([]unsafe.Pointer, len(p.anchors))}
	for i, s := range p.anchors {
		f.contents[i] = reflect.New(s.plan.t).UnsafePointer()
		s.plan.copy(f.contents[i], s.at)
	}
	p.is = f
	return f
}

// thaw puts a part back as it was. What was frozen can be thawed again.
func (z *freezer) thaw(i int, f *frozen) {
	p := &z.parts[i]
	if p.is == f {
		return
	}
	for i, s := range p.anchors {
		s.plan.copy(s.at, f.contents[i])
	}
	p.is = f
}

// touched: a part may have changed.
func (z *freezer) touched(i int) { z.parts[i].is = nil }

// settable is a value whose fields may be written, exported or not.
func settable(v reflect.Value) reflect.Value {
	if v.CanSet() || !v.CanAddr() {
		return v
	}
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
}

func addressable(v reflect.Value) reflect.Value {
	n := reflect.New(v.Type()).Elem()
	n.Set(v)
	return n
}

func (z *freezer) planOf(t reflect.Type) *plan {
	if p := z.plans[t]; p != nil {
		return p
	}
	p := &plan{t: t}
	z.plans[t] = p // a type may hold itself
	p.flat = z.isFlat(t, map[reflect.Type]bool{})
	p.copy = z.copier(t, p.flat)
	return p
}

func at(p unsafe.Pointer, t reflect.Type) reflect.Value { return reflect.NewAt(t, p).Elem() }

// move is a plain copy.
func move(t reflect.Type) func(dst, src unsafe.Pointer) {
	switch t.Kind() {
	case reflect.String:
		return func(dst, src unsafe.Pointer) { *(*string)(dst) = *(*string)(src) }
	case reflect.Bool, reflect.Uint8:
		return func(dst, src unsafe.Pointer) { *(*byte)(dst) = *(*byte)(src) }
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return func(dst, src unsafe.Pointer) { *(*uint64)(dst) = *(*uint64)(src) }
	}
	return func(dst, src unsafe.Pointer) { at(dst, t).Set(at(src, t)) }
}

func (z *freezer) copier(t reflect.Type, flat bool) func(dst, src unsafe.Pointer) {
	whole := move(t)
	if flat {
		return whole
	}
	switch t.Kind() {
	case reflect.Pointer:
		elem := z.planOf(t.Elem())
		return func(dst, src unsafe.Pointer) {
			from := *(*unsafe.Pointer)(src)
			if from == nil {
				*(*unsafe.Pointer)(dst) = nil
				return
			}
			n := reflect.New(elem.t).UnsafePointer()
			elem.copy(n, from)
			*(*unsafe.Pointer)(dst) = n
		}
	case reflect.Struct:
		return z.structs(t)
	case reflect.Slice:
		return z.slices(t)
	case reflect.Map:
		if f := z.usual(t); f != nil {
			return f
		}
		return z.maps(t)
	case reflect.Interface:
		return func(dst, src unsafe.Pointer) {
			d, s := at(dst, t), at(src, t)
			if s.IsNil() {
				d.SetZero()
				return
			}
			p := z.planOf(s.Elem().Type())
			from, n := addressable(s.Elem()), reflect.New(p.t)
			p.copy(n.UnsafePointer(), from.Addr().UnsafePointer())
			d.Set(n.Elem())
		}
	case reflect.Array:
		elem := z.planOf(t.Elem())
		return func(dst, src unsafe.Pointer) {
			for i := range t.Len() {
				by := uintptr(i) * elem.t.Size()
				elem.copy(unsafe.Add(dst, by), unsafe.Add(src, by))
			}
		}
	}
	return whole // functions and channels are the same for all moments
}

// structs copies what is flat, and then each field that is not.
func (z *freezer) structs(t reflect.Type) func(dst, src unsafe.Pointer) {
	type field struct {
		at   uintptr
		plan *plan
	}
	var deep, plain []field
	forgets := false
	for i := range t.NumField() {
		f := t.Field(i)
		p := z.planOf(f.Type)
		switch {
		case z.forgotten[t.Name()+"."+f.Name]:
			forgets = true
		case p.flat:
			plain = append(plain, field{f.Offset, p})
		default:
			deep = append(deep, field{f.Offset, p})
		}
	}
	whole := move(t)
	return func(dst, src unsafe.Pointer) {
		if forgets {
			for _, f := range plain {
				f.plan.copy(unsafe.Add(dst, f.at), unsafe.Add(src, f.at))
			}
		} else {
			whole(dst, src)
		}
		for _, f := range deep {
			f.plan.copy(unsafe.Add(dst, f.at), unsafe.Add(src, f.at))
		}
	}
}

func (z *freezer) slices(t reflect.Type) func(dst, src unsafe.Pointer) {
	elem := z.planOf(t.Elem())
	return func(dst, src unsafe.Pointer) {
		s := at(src, t)
		if s.IsNil() {
			at(dst, t).SetZero()
			return
		}
		n := reflect.MakeSlice(t, s.Len(), s.Len())
		if elem.flat {
			reflect.Copy(n, s)
		} else {
			to, from := n.UnsafePointer(), s.UnsafePointer()
			for i := range s.Len() {
				by := uintptr(i) * elem.t.Size()
				elem.copy(unsafe.Add(to, by), unsafe.Add(from, by))
			}
		}
		at(dst, t).Set(n)
	}
}

func (z *freezer) maps(t reflect.Type) func(dst, src unsafe.Pointer) {
	elem := z.planOf(t.Elem())
	return func(dst, src unsafe.Pointer) {
		s := at(src, t)
		if s.IsNil() {
			at(dst, t).SetZero()
			return
		}
		n := reflect.MakeMapWithSize(t, s.Len())
		for it := s.MapRange(); it.Next(); {
			if elem.flat {
				n.SetMapIndex(it.Key(), it.Value())
				continue
			}
			to := reflect.New(elem.t)
			elem.copy(to.UnsafePointer(), addressable(it.Value()).Addr().UnsafePointer())
			n.SetMapIndex(it.Key(), to.Elem())
		}
		at(dst, t).Set(n)
	}
}

// isFlat: a plain copy is a whole copy. Strings never change; a time's zone
// neither; anchors stay where they are, and a log is the same for all moments.
func (z *freezer) isFlat(t reflect.Type, within map[reflect.Type]bool) bool {
	if within[t] {
		return false // it holds itself
	}
	within[t] = true
	defer delete(within, t)
	switch t.Kind() {
	case reflect.Pointer:
		return t.Elem().PkgPath() == "log/slog" || z.anchor(t.Elem())
	case reflect.Interface, reflect.Slice, reflect.Map:
		return false
	case reflect.Struct:
		if t.PkgPath() == "time" {
			return true
		}
		for i := range t.NumField() {
			if f := t.Field(i); z.forgotten[t.Name()+"."+f.Name] || !z.isFlat(f.Type, within) {
				return false
			}
		}
		return true
	case reflect.Array:
		return z.isFlat(t.Elem(), within)
	}
	return true
}

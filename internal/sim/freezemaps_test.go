package sim

import (
	"reflect"
	"time"
	"unsafe"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/observe"
)

// usual are the maps that a moment has most of, copied without reflection; nil for
// any other.
func (z *freezer) usual(t reflect.Type) func(dst, src unsafe.Pointer) {
	elem := z.planOf(t.Elem())
	for _, m := range []struct {
		t    reflect.Type
		copy func(dst, src unsafe.Pointer)
	}{
		mapOf[string, string](elem), mapOf[string, bool](elem), mapOf[string, time.Time](elem), mapOf[string, fleet.MemberID](elem),
		mapOf[fleet.MemberID, time.Time](elem), mapOf[fleet.MemberID, string](elem), mapOf[fleet.MemberID, bool](elem),
		mapOf[fleet.SwapID, fleet.Outcome](elem), mapOf[string, observe.Heartbeat](elem),
		mapOf[string, *Node](elem), mapOf[string, *ConfigMap](elem), mapOf[fleet.Role, *Unit](elem), mapOf[string, failing](elem), mapOf[string, time.Duration](elem),
	} {
		if m.t == t {
			return m.copy
		}
	}
	return nil
}

func mapOf[K comparable, V any](elem *plan) struct {
	t    reflect.Type
	copy func(dst, src unsafe.Pointer)
} {
	return struct {
		t    reflect.Type
		copy func(dst, src unsafe.Pointer)
	}{reflect.TypeFor[map[K]V](), func(dst, src unsafe.Pointer) {
		s := *(*map[K]V)(src)
		if s == nil {
			*(*map[K]V)(dst) = nil
			return
		}
		n := make(map[K]V, len(s))
		for key, v := range s {
			if !elem.flat {
				c := v
				elem.copy(unsafe.Pointer(&c), unsafe.Pointer(&v))
				v = c
			}
			n[key] = v
		}
		*(*map[K]V)(dst) = n
	}}
}

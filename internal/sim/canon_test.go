package sim

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/fnv"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/controller"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/status"
)

// canon writes a whole system as bytes that are the same for two moments from
// which the same can follow. Everything is written but what the lists below
// leave out, each with its reason. A time becomes its age, and an age that is
// beyond every bound becomes the bound.
type canon struct {
	w       *World
	boss    *controller.Controller
	daemons []*hostd.Daemon
	now     time.Time
	h       hash.Hash
	skip    map[string]bool // Type.Field
	cache   map[reflect.Type][]int
	// texts are documents written before: the same text at the same time is the same.
	texts  map[textAt]digest
	vouchs map[string]vouched
}

type textAt struct {
	text string
	at   int64
}

// vouched is what a heartbeat vouches for.
type vouched struct {
	counter uint64
	boot    string
}

// oldest is beyond every bound of the walk's policy.
const oldest = 120 * time.Second

// left out: what nothing is decided by.
var leftOut = []string{
	// The machinery itself.
	"World.mu", "World.cfg", "World.rng", "World.log", "World.watch", "World.wakers", "World.now", "World.nextTick", "World.left", "World.cut",
	"guard.violations", "members.seen", "members.hosts",
	// Versions tell a change between a read and its write; no pass stops in between here.
	"API.version", "API.leaseAt", "Node.version", "ConfigMap.version", "Cluster.w", "raft.w",
	// The applied index breaks ties between equal voters, and here they are equal.
	"raft.index", "EtcdView.AppliedIndex",
	// For people.
	"Report.At", "Report.SkewMS", "Daemon.facts", "Daemon.decision", "Daemon.lastWait", "Daemon.log", "Daemon.s", "Controller.said", "Controller.log",
	"Controller.settings", "Controller.rules", "Controller.executor", "Controller.cluster", "Observer.cluster", "Observer.settings",
	"Status.At", "Status.Next", "Status.Dropped", "Status.Hosts", "Status.Pending", "LastSwap.Steps", "LastSwap.Reasons", "LastSwap.EndedAt", "Swap.Deadline", "Swap.Reasons", "Swap.Cause",
	"StepTime.unused", "HostAPI.m", "HostAPI.watch", "Heartbeat.Renewed", "Heartbeat.Counter",
	// A daemon reads the Nodes anew in the first pass of each beat; they set its pace
	// and the standbys that it dials, who are the same all the time.
	"Daemon.nodes", "HostAPI.nodes",
	// How soon a daemon looks again: time goes in beats here.
	"Daemon.last", "Daemon.soonCode", "Daemon.soonSince",
	// Counters are compared with each other only: see reports.
	"Report.Counter", "Daemon.counter", "Beat.Counter", "seenReport.raw", "seenReport.counter", "seenReport.beat",
	// What was published last is written again each minute or when it differs from
	// what is composed: once more changes nothing.
	"Controller.published",
}

func newCanon(w *World, boss *controller.Controller, daemons []*hostd.Daemon) *canon {
	c := &canon{w: w, boss: boss, daemons: daemons, skip: map[string]bool{}, cache: map[reflect.Type][]int{}, texts: map[textAt]digest{}, vouchs: map[string]vouched{}}
	for _, f := range leftOut {
		c.skip[f] = true
	}
	return c
}

type digest [16]byte

func (c *canon) of(extra []byte, roots ...any) digest {
	c.h, c.now = fnv.New128a(), c.w.now
	_, _ = c.h.Write(extra)
	for _, r := range roots {
		c.value(reflect.ValueOf(r).Elem())
	}
	c.reports()
	var d digest
	c.h.Sum(d[:0])
	return d
}

func (c *canon) word(s string) {
	var n [4]byte
	binary.LittleEndian.PutUint32(n[:], uint32(len(s)))
	_, _ = c.h.Write(n[:])
	_, _ = c.h.Write([]byte(s))
}

func (c *canon) number(n uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], n)
	_, _ = c.h.Write(b[:])
}

func (c *canon) age(t time.Time) {
	if t.IsZero() {
		c.number(1 << 62)
		return
	}
	c.number(uint64(min(max(c.now.Sub(t), -oldest), oldest) / time.Millisecond))
}

func (c *canon) value(v reflect.Value) {
	v = settable(v)
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			c.word("nil")
			return
		}
		if _, walked := v.Interface().(*World); walked {
			return
		}
		c.value(v.Elem())
	case reflect.Interface:
		if v.IsNil() {
			c.word("nil")
			return
		}
		c.value(addressable(v.Elem()))
	case reflect.Struct:
		c.fields(v)
	case reflect.Slice, reflect.Array:
		if b, ok := v.Interface().([]byte); ok {
			c.document(string(b))
			return
		}
		c.number(uint64(v.Len()))
		for i := range v.Len() {
			c.value(v.Index(i))
		}
	case reflect.Map:
		c.maps(v)
	case reflect.String:
		c.document(v.String())
	case reflect.Bool:
		if v.Bool() {
			c.number(1)
		} else {
			c.number(0)
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		c.number(uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		c.number(v.Uint())
	case reflect.Func, reflect.Chan:
	default:
		panic("canon: " + v.Type().String())
	}
}

func addressable(v reflect.Value) reflect.Value {
	n := reflect.New(v.Type()).Elem()
	n.Set(v)
	return n
}

func (c *canon) fields(v reflect.Value) {
	if t, ok := v.Interface().(time.Time); ok {
		c.age(t)
		return
	}
	t := v.Type()
	kept, known := c.cache[t]
	if !known {
		for i := range t.NumField() {
			if !c.skip[t.Name()+"."+t.Field(i).Name] {
				kept = append(kept, i)
			}
		}
		c.cache[t] = kept
	}
	for _, i := range kept {
		c.value(v.Field(i))
	}
}

func (c *canon) maps(v reflect.Value) {
	if v.Len() == 0 {
		c.number(0)
		return
	}
	keys := v.MapKeys()
	text := v.Type().Key().Kind() == reflect.String
	slices.SortFunc(keys, func(a, b reflect.Value) int {
		if text {
			return strings.Compare(a.String(), b.String())
		}
		return cmp.Compare(a.Uint(), b.Uint())
	})
	c.number(uint64(len(keys)))
	strs := v.Type().Elem().Kind() == reflect.String
	for _, k := range keys {
		if text {
			c.word(k.String())
		} else {
			c.number(k.Uint())
		}
		if e := v.MapIndex(k); strs {
			c.document(e.String())
		} else {
			c.value(addressable(e))
		}
	}
}

// document writes a text. Reports and the status are written as what they say,
// any other time in a text as its age.
func (c *canon) document(s string) {
	if len(s) < 19 {
		c.word(s) // too short for a time
		return
	}
	key := textAt{s, c.now.UnixNano()}
	d, known := c.texts[key]
	if !known {
		if len(c.texts) > 200_000 {
			clear(c.texts)
		}
		outer := c.h
		c.h = fnv.New128a()
		c.write(s)
		c.h.Sum(d[:0])
		c.h = outer
		c.texts[key] = d
	}
	_, _ = c.h.Write(d[:])
}

func (c *canon) write(s string) {
	if strings.HasPrefix(s, `{"protocol":`) {
		if strings.Contains(s, `"boot_id":`) {
			if r, err := status.ParseReport([]byte(s)); err == nil {
				c.value(reflect.ValueOf(&r).Elem())
				return
			}
		}
		if strings.Contains(s, `"last_swap":`) {
			if st, err := status.ParseStatus([]byte(s)); err == nil {
				c.value(reflect.ValueOf(&st).Elem())
				return
			}
		}
	}
	c.text(s)
}

const stamp = "2006-01-02T15:04:05"

func (c *canon) text(s string) {
	for {
		i := strings.Index(s, "T")
		for i >= 0 && (i < 10 || i+len(":04:05")+2 >= len(s) || s[i-3] != '-' || s[i+3] != ':') {
			j := strings.Index(s[i+1:], "T")
			if j < 0 {
				i = -1
				break
			}
			i += 1 + j
		}
		if i < 0 {
			c.word(s)
			return
		}
		at, err := time.Parse(stamp, s[i-10:i+9])
		if err != nil {
			c.word(s)
			return
		}
		c.word(s[:i-10])
		c.age(at)
		s = strings.TrimLeft(s[i+9:], ".0123456789")
	}
}

// reports writes what the observer, the daemons and the API have to do with each
// other: which report the observer has seen, and whether a heartbeat vouches for
// it. The counters themselves say nothing more.
func (c *canon) reports() {
	b := reflect.ValueOf(c.boss).Elem().FieldByName("observer").Elem()
	seen := settable(b.FieldByName("reports"))
	for i, h := range c.w.hosts {
		raw := ""
		if cm := c.w.api.ConfigMaps[fleet.ConfigMapActuators]; cm != nil {
			raw = cm.Data[h.Name]
		}
		v, known := c.vouchs[raw]
		if !known {
			if r, err := status.ParseReport([]byte(raw)); err == nil {
				v = vouched{r.Counter, r.BootID}
			}
			if len(c.vouchs) > 100_000 {
				clear(c.vouchs)
			}
			c.vouchs[raw] = v
		}
		counter, boot := v.counter, v.boot
		d := reflect.ValueOf(c.daemons[i]).Elem()
		own := d.FieldByName("counter").Uint()
		beat := c.w.api.Heartbeats[h.Name]
		beaten := settable(d.FieldByName("beaten")).FieldByName("Counter").Uint()
		c.word(fmt.Sprint(cmp.Compare(counter, own), beat.BootID == boot, beat.Counter == fmt.Sprint(counter), beaten == own, c.same(beat.Renewed)))
		s := seen.MapIndex(reflect.ValueOf(h.Name))
		if !s.IsValid() {
			continue
		}
		s = s.Elem()
		was := settable(s.FieldByName("beat")).Interface().(observe.Heartbeat)
		c.word(fmt.Sprint(s.FieldByName("raw").String() == raw, cmp.Compare(s.FieldByName("counter").Uint(), counter), was == beat))
	}
}

func (c *canon) same(t time.Time) bool { return c.now.Equal(t) }

package sim

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unsafe"

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
	buf     []byte
	oldest  time.Duration
	skip    map[string]bool // Type.Field
	writers map[reflect.Type]*writer
	// texts are documents written before: the same text at the same time is the same.
	texts map[textAt]digest
	// said and statuses are what reports and statuses say, by their texts.
	said     map[string]status.Report
	statuses map[string]status.Status
	vouchs   map[string]vouched
}

type textAt struct {
	text   string
	at     int64
	oldest time.Duration
}

// vouched is what a heartbeat vouches for.
type vouched struct {
	counter uint64
	boot    string
}

// oldest is beyond every bound of the walk's policy; long lived are the things that
// have bounds of their own.
const oldest = 120 * time.Second

var longLived = map[string]time.Duration{
	"Daemon.wroteAt":                  6 * time.Minute,                  // an unchanged report is written again after five
	"map." + string(fleet.KeyRequest): status.RequestLife + time.Minute, // of a request
}

// left out: what nothing is decided by.
var leftOut = []string{
	// The machinery itself.
	"World.mu", "World.cfg", "World.coin", "World.log", "World.changes", "World.read", "World.watch", "World.wakers", "World.now", "World.nextTick", "World.left", "World.cut",
	"guard.violations", "members.seen", "members.hosts",
	// Written as parts of their own.
	"API.ConfigMaps", "API.Heartbeats", "World.guard",
	// Versions tell a change between a read and its write; no pass stops in between here.
	"API.version", "API.leaseAt", "Node.version", "ConfigMap.version", "Cluster.w", "raft.w",
	// The applied index breaks ties between equal voters, and here they are equal.
	"raft.index", "EtcdView.AppliedIndex",
	// For people.
	"Report.At", "Report.SkewMS", "Daemon.facts", "Daemon.decision", "Daemon.lastWait", "Daemon.log", "Daemon.s", "Controller.said", "Controller.log",
	"Controller.settings", "Controller.rules", "Controller.executor", "Controller.cluster", "Observer.cluster", "Observer.settings",
	"Status.At", "Status.Next", "Status.Dropped", "Status.Hosts", "Status.Pending", "LastSwap.Steps", "LastSwap.Reasons", "LastSwap.EndedAt", "Swap.Deadline", "Swap.Reasons", "Swap.Cause",
	"StepTime.unused", "HostAPI.m", "HostAPI.watch", "Heartbeat.Renewed", "Heartbeat.Counter",
	// The same as the daemon's own, of which is written what it reads.
	"HostAPI.nodes",
	// How soon a daemon looks again: time goes in beats here.
	"Daemon.last", "Daemon.soonCode", "Daemon.soonSince",
	// Counters are compared with each other only: see reports.
	"Report.Counter", "Daemon.counter", "Beat.Counter", "seenReport.raw", "seenReport.counter", "seenReport.beat",
	// What was published last is written again each minute or when it differs from
	// what is composed: once more changes nothing.
	"Controller.published",
}

func newCanon(w *World, boss *controller.Controller, daemons []*hostd.Daemon) *canon {
	c := &canon{w: w, boss: boss, daemons: daemons, skip: map[string]bool{}, writers: map[reflect.Type]*writer{}, texts: map[textAt]digest{}, said: map[string]status.Report{}, statuses: map[string]status.Status{}, vouchs: map[string]vouched{}}
	for _, f := range leftOut {
		c.skip[f] = true
	}
	return c
}

type digest [16]byte

// part is the digest of what is reached from a root. The bytes are hashed once, as
// a whole, by a hash whose collisions nobody has found.
func (c *canon) part(root any) digest {
	c.now, c.buf, c.oldest = c.w.now, c.buf[:0], oldest
	v := reflect.ValueOf(root)
	c.writerOf(v.Type().Elem())(v.UnsafePointer())
	return sum(c.buf)
}

func sum(b []byte) digest {
	s := sha256.Sum256(b)
	return digest(s[:16])
}

func (c *canon) word(s string) {
	c.buf = binary.LittleEndian.AppendUint32(c.buf, uint32(len(s)))
	c.buf = append(c.buf, s...)
}

func (c *canon) number(n uint64) { c.buf = binary.LittleEndian.AppendUint64(c.buf, n) }

func (c *canon) age(t time.Time) {
	if t.IsZero() {
		c.number(1 << 62)
		return
	}
	c.number(uint64(min(max(c.now.Sub(t), -c.oldest), c.oldest) / time.Millisecond))
}

// document writes a text. Reports and the status are written as what they say,
// any other time in a text as its age.
func (c *canon) document(s string) {
	if len(s) < 19 {
		c.word(s) // too short for a time
		return
	}
	key := textAt{s, c.now.UnixNano(), c.oldest}
	d, known := c.texts[key]
	if !known {
		if len(c.texts) > 200_000 {
			clear(c.texts)
		}
		outer := c.buf
		c.buf = nil
		c.write(s)
		d = sum(c.buf)
		c.buf = outer
		c.texts[key] = d
	}
	c.buf = append(c.buf, d[:]...)
}

func (c *canon) write(s string) {
	if strings.HasPrefix(s, `{"protocol":`) {
		if strings.Contains(s, `"boot_id":`) {
			if r, ok := memo(c.said, s, status.ParseReport); ok {
				c.writerOf(reflect.TypeOf(r))(unsafe.Pointer(&r))
				return
			}
		}
		if strings.Contains(s, `"last_swap":`) {
			if st, ok := memo(c.statuses, s, status.ParseStatus); ok {
				c.writerOf(reflect.TypeOf(st))(unsafe.Pointer(&st))
				return
			}
		}
	}
	c.text(s)
}

// memo reads each text once, as long as there is room.
func memo[T any](known map[string]T, s string, parse func([]byte) (T, error)) (T, bool) {
	if v, ok := known[s]; ok {
		return v, true
	}
	v, err := parse([]byte(s))
	if err != nil {
		return v, false
	}
	if len(known) > 20_000 {
		clear(known)
	}
	known[s] = v
	return v, true
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
func (c *canon) reports() digest {
	c.buf = c.buf[:0]
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
		c.buf = append(c.buf, byte(i), byte(cmp.Compare(counter, own)), flag(beat.BootID == boot),
			flag(beat.Counter == strconv.FormatUint(counter, 10)), flag(beaten == own), flag(c.now.Equal(beat.Renewed)))
		s := seen.MapIndex(reflect.ValueOf(h.Name))
		if !s.IsValid() {
			continue
		}
		s = s.Elem()
		was := settable(s.FieldByName("beat")).Interface().(observe.Heartbeat)
		c.buf = append(c.buf, flag(s.FieldByName("raw").String() == raw), byte(cmp.Compare(s.FieldByName("counter").Uint(), counter)), flag(was == beat))
	}
	return sum(c.buf)
}

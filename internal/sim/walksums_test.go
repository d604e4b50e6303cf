package sim

import "github.com/exadev/regrade/internal/observe"

// sums are the digests of the system's parts, and of what they have to do with each
// other. What has not changed since is not hashed again.
type sums [theSums]digest

// Beside the parts that are frozen: what hosts and controller say to each other, what
// the guard knows, and how counters compare.
const (
	theSaid = theParts + iota
	theGuard
	theReports
	theSums
)

func (s *sums) whole() digest {
	all := make([]byte, 0, len(s)*len(digest{}))
	for _, d := range s {
		all = append(all, d[:]...)
	}
	return sum(all)
}

// sum takes the sums anew after a pass: of what its process keeps, and of the world
// where something in it was changed.
func (k *walk) sum(i int) {
	for _, p := range parts(i) {
		k.sumOf(p)
	}
	k.sumOf(theReports)
	if k.changed || k.plain {
		before := k.sums
		k.sumWorld()
		if !k.changed && k.sums != before {
			k.fail("the world was changed and did not count it")
		}
	}
}

func (k *walk) sumWorld() {
	for _, p := range []int{theWorld, theSaid, theGuard} {
		k.sumOf(p)
	}
}

// sumAll takes them anew after a fault, or a beat: it changes every age.
func (k *walk) sumAll() {
	for p := range theSums {
		k.sumOf(p)
	}
}

func (k *walk) sumOf(part int) {
	switch part {
	case theWorld:
		k.sums[part] = k.canon.part(k.w)
	case theBoss:
		k.sums[part] = k.canon.part(k.boss)
	case theSaid:
		s := said{k.w.api.ConfigMaps, k.w.api.Heartbeats}
		k.sums[part] = k.canon.part(&s)
	case theGuard:
		k.sums[part] = k.canon.part(k.w.guard)
	case theReports:
		k.sums[part] = k.canon.reports()
	default:
		k.sums[part] = k.canon.part(k.daemons[part-theDaemons])
	}
}

// said is what no host daemon reads.
type said struct {
	maps  map[string]*ConfigMap
	beats map[string]observe.Heartbeat
}

// input is the digest of all that a pass of a process depends on: the time is the same
// within a beat. A daemon reads neither reports nor the status nor heartbeats (its
// port has no way to), and nobody reads what the guard knows.
func (k *walk) input(i int) digest {
	own := append(make([]byte, 0, 6*len(digest{})), k.sums[theWorld][:]...)
	for _, p := range parts(i) {
		own = append(own, k.sums[p][:]...)
	}
	if i == 0 {
		own = append(append(own, k.sums[theSaid][:]...), k.sums[theReports][:]...)
	}
	return sum(own)
}

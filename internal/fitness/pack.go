package fitness

import "fmt"

// packer writes numbers as base-128 varints, seven bits a byte.
type packer struct{ b []byte }

func (p *packer) uint(v uint64) {
	for v >= 0x80 {
		p.b = append(p.b, byte(v)|0x80)
		v >>= 7
	}
	p.b = append(p.b, byte(v))
}

// int folds the sign into the lowest bit, so that small steps either way are
// short.
func (p *packer) int(v int64) { p.uint(uint64(v<<1) ^ uint64(v>>63)) }

// unpacker reads them. After the first fault it reads zeros, and fault says
// what was wrong.
type unpacker struct {
	b     []byte
	at    int
	fault string
}

func (u *unpacker) fail(format string, args ...any) {
	if u.fault == "" {
		u.fault = fmt.Sprintf(format, args...)
	}
}

func (u *unpacker) uint() uint64 {
	var v uint64
	for shift := 0; ; shift += 7 {
		if u.fault != "" {
			return 0
		}
		if u.at >= len(u.b) {
			u.fail("the data ends early, after %d bytes", len(u.b))
			return 0
		}
		c := u.b[u.at]
		u.at++
		if shift == 63 && c > 1 {
			u.fail("a number at byte %d does not fit in 64 bits", u.at)
			return 0
		}
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v
		}
	}
}

func (u *unpacker) int() int64 {
	v := u.uint()
	return int64(v>>1) ^ -int64(v&1)
}

// upTo reads a number that may be at most so large.
func (u *unpacker) upTo(most uint64, what string) uint64 {
	v := u.uint()
	if v > most {
		u.fail("%s of %d is more than %d", what, v, most)
		return 0
	}
	return v
}

package fitness

import (
	"fmt"
	"math/bits"
)

// The packed samples are numbers, each written in as few bits as it has, and how
// many it has in as few as that is a surprise in its column: an adaptive range
// coder, as in LZMA. Most numbers of a window are like the last ones of their
// column, so a write of the whole ConfigMap costs etcd a third of what plain
// numbers would (ADR 0010).

// column is what a number is, which decides what it is like.
type column int

const (
	colFlags column = iota
	colStep
	colLink
	colVoters
	colMemoryFlags
	colTotal
	colAvailable
	colFsync
	colAbsent
	colEtcdFlags
	colMember
	colCounts
	colQuota
	colDB
	colEvents
	colPeers
	plainColumns
)

// Kinds of a histogram, which have columns of their own.
const (
	kindWAL column = iota
	kindCommit
	kindTrip
	kinds
)

// Columns of which there are several.
const (
	colSum     = plainColumns          // by kind
	colAverage = colSum + kinds        // by average
	colConnect = colAverage + 4        // by voter
	colBucket  = colConnect + maxNames // by kind and bucket
	columns    = colBucket + kinds*MaxBuckets
)

const (
	lengthBits  = 7 // a number has 0 to 64 bits
	perLength   = 1 << lengthBits
	probBits    = 11
	evenChance  = 1 << (probBits - 1)
	adaptShift  = 4
	renormalise = 1 << 24
	startOfCode = 5 // bytes that a reader takes before the first number
)

// model holds the chances of the bits of one column: a tree for the number of
// bits, and for each number of bits the one below the highest.
type model [perLength + 65]uint16

type models [columns]*model

func (m *models) of(c column) *model {
	if m[c] == nil {
		m[c] = &model{}
		for i := range m[c] {
			m[c][i] = evenChance
		}
	}
	return m[c]
}

// packer writes numbers.
type packer struct {
	b       []byte
	models  models
	low     uint64
	span    uint32
	carry   byte
	carries int
}

func newPacker() *packer { return &packer{span: 1<<32 - 1, carries: 1} }

func (p *packer) uint(c column, v uint64) { p.number(c, v, 64) }

// number writes the highest bits of a number, so many of them; the others are
// zero.
func (p *packer) number(c column, v uint64, significant int) {
	m := p.models.of(c)
	n := bits.Len64(v)
	node := 1
	for i := lengthBits - 1; i >= 0; i-- {
		bit := n >> i & 1
		p.bit(&m[node], bit)
		node = node<<1 | bit
	}
	if n >= 2 {
		p.bit(&m[perLength+n], int(v>>(n-2)&1))
	}
	for i := n - 3; i >= max(0, n-significant); i-- {
		p.span >>= 1
		if v>>i&1 != 0 {
			p.low += uint64(p.span)
		}
		p.shift()
	}
}

// flag writes yes or no, in the column of the number that it announces.
func (p *packer) flag(c column, yes bool) {
	bit := 0
	if yes {
		bit = 1
	}
	p.bit(&p.models.of(c)[0], bit) // the tree of a model begins at 1
}

// int folds the sign into the lowest bit.
func (p *packer) int(c column, v int64) { p.uint(c, uint64(v<<1)^uint64(v>>63)) }

func (p *packer) bit(chance *uint16, bit int) {
	bound := p.span >> probBits * uint32(*chance)
	if bit == 0 {
		p.span = bound
		*chance += (1<<probBits - *chance) >> adaptShift
	} else {
		p.low += uint64(bound)
		p.span -= bound
		*chance -= *chance >> adaptShift
	}
	p.shift()
}

func (p *packer) shift() {
	for p.span < renormalise {
		p.span <<= 8
		p.byte()
	}
}

func (p *packer) byte() {
	if p.low < 0xff000000 || p.low > 1<<32-1 {
		for b := p.carry; p.carries > 0; p.carries-- {
			p.b = append(p.b, b+byte(p.low>>32))
			b = 0xff
		}
		p.carry = byte(p.low >> 24)
	}
	p.carries++
	p.low = p.low & 0xffffff << 8
}

// end gives what was written.
func (p *packer) end() []byte {
	for range startOfCode {
		p.byte()
	}
	return p.b
}

// unpacker reads them. After the first fault it reads zeros, and fault says
// what was wrong.
type unpacker struct {
	b      []byte
	at     int
	models models
	code   uint32
	span   uint32
	fault  string
}

func newUnpacker(b []byte) *unpacker {
	u := &unpacker{b: b, span: 1<<32 - 1}
	for range startOfCode {
		u.byte()
	}
	return u
}

func (u *unpacker) fail(format string, args ...any) {
	if u.fault == "" {
		u.fault = fmt.Sprintf(format, args...)
	}
}

func (u *unpacker) byte() {
	if u.at >= len(u.b) {
		u.fail("the data end early, after %d bytes", len(u.b))
		return
	}
	u.code = u.code<<8 | uint32(u.b[u.at])
	u.at++
}

func (u *unpacker) flag(c column) bool { return u.fault == "" && u.bit(&u.models.of(c)[0]) == 1 }

func (u *unpacker) uint(c column) uint64 { return u.number(c, 64) }

func (u *unpacker) number(c column, significant int) uint64 {
	if u.fault != "" {
		return 0
	}
	m := u.models.of(c)
	node := 1
	for range lengthBits {
		node = node<<1 | u.bit(&m[node])
	}
	n := node - perLength
	switch {
	case n > 64:
		u.fail("a number of %d bits at byte %d", n, u.at)
		return 0
	case n < 2:
		return uint64(n)
	}
	v := uint64(2 | u.bit(&m[perLength+n]))
	read := min(n, significant)
	for range read - 2 {
		u.span >>= 1
		bit := uint64(0)
		if u.code >= u.span {
			u.code -= u.span
			bit = 1
		}
		v = v<<1 | bit
		u.shift()
	}
	if u.fault != "" {
		return 0
	}
	return v << (n - read)
}

func (u *unpacker) bit(chance *uint16) int {
	bit := 0
	if bound := u.span >> probBits * uint32(*chance); u.code < bound {
		u.span = bound
		*chance += (1<<probBits - *chance) >> adaptShift
	} else {
		bit = 1
		u.code -= bound
		u.span -= bound
		*chance -= *chance >> adaptShift
	}
	u.shift()
	return bit
}

func (u *unpacker) shift() {
	for u.span < renormalise && u.fault == "" {
		u.span <<= 8
		u.byte()
	}
}

func (u *unpacker) int(c column) int64 {
	v := u.uint(c)
	return int64(v>>1) ^ -int64(v&1)
}

// upTo reads a number that may be at most so large.
func (u *unpacker) upTo(c column, most uint64, what string) uint64 {
	v := u.uint(c)
	if v > most {
		u.fail("%s of %d is more than %d", what, v, most)
		return 0
	}
	return v
}

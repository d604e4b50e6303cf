package observe

import "slices"

// boots are ids of boots that a host was seen to be past, the last one last. An
// account may write another one in each period, and what a reader keeps must not grow
// with that: no more than mostBoots are remembered.
type boots []string

const mostBoots = 32

func (b *boots) add(boot string) {
	b.remove(boot)
	*b = append(*b, boot)
	if over := len(*b) - mostBoots; over > 0 {
		*b = slices.Delete(*b, 0, over)
	}
}

func (b *boots) remove(boot string) {
	*b = slices.DeleteFunc(*b, func(x string) bool { return x == boot })
}

func (b boots) has(boot string) bool { return slices.Contains(b, boot) }

package fitness

import "slices"

// toldFailures is of how many of its newest samples an entry says why connects failed.
const toldFailures = 16

// failures are the connects of the newest samples that failed for why, nil for none.
func failures(samples []Sample, why Failure) map[string]uint32 {
	var told map[string]uint32
	for i := range min(len(samples), toldFailures) {
		for _, c := range samples[len(samples)-1-i].Connect {
			if c.Why != why {
				continue
			}
			if told == nil {
				told = map[string]uint32{}
			}
			told[c.To] |= 1 << i
		}
	}
	return told
}

// tell writes into the samples why their connects failed. One that is told of a connect
// that did not fail, or was not made, is of another entry.
func tell(samples []Sample, told map[string]uint32, why Failure) error {
	for to, mask := range told {
		if mask == 0 || mask>>toldFailures != 0 {
			return entryError(CodeEntryMalformed, "%s of the way to %s is %d", why, clip(to, maxNameLen), mask)
		}
		for i := range toldFailures {
			if mask&(1<<i) == 0 {
				continue
			}
			c := (*Connect)(nil)
			if i < len(samples) {
				connects := samples[len(samples)-1-i].Connect
				if k := slices.IndexFunc(connects, func(c Connect) bool { return c.To == to }); k >= 0 {
					c = &connects[k]
				}
			}
			if c == nil || !c.Failed || c.Why != "" {
				return entryError(CodeEntryMalformed, "a connect to %s was %s, which its sample does not say", clip(to, maxNameLen), why)
			}
			c.Why = why
		}
	}
	return nil
}

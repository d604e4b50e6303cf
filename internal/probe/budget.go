package probe

import "time"

// What probes and host daemons together may write into etcd (safety rule 29), in
// bytes a second: so much at nine hosts, so much at 64, and in between in
// proportion. Beyond it does not grow: etcd does not either.
const (
	smallFleet, smallBudget = 9, 5 << 10
	largeFleet, largeBudget = 64, 50 << 10

	// beatBytes is what etcd writes for one heartbeat Lease, with its key and the
	// record of its fields' owners; the probe and the host daemon of each host write
	// one a period.
	beatBytes = 1 << 10
	// reports is left to the host daemons' reports, slack to chance: parts of the
	// budget.
	reports, slack = 0.10, 0.05
	// What a write of the map has beside its data, in all and for each key.
	mapOverhead, keyOverhead = 1 << 10, 128
)

// budget is what may be written with so many hosts, in bytes a second.
func budget(hosts int) int {
	hosts = min(max(hosts, smallFleet), largeFleet)
	return smallBudget + (largeBudget-smallBudget)*(hosts-smallFleet)/(largeFleet-smallFleet)
}

// writeEvery is every how many periods each of so many hosts may write its
// window into a map of so many bytes, at least one and at most most: each write
// makes etcd write the whole map.
func writeEvery(hosts, mapBytes int, period time.Duration, most int) int {
	hosts = max(hosts, 1)
	seconds := period.Seconds()
	left := float64(budget(hosts))*(1-reports-slack) - 2*beatBytes*float64(hosts)/seconds
	if left <= 0 {
		return max(most, 1)
	}
	cost := float64(hosts) * float64(max(mapBytes, 0)+mapOverhead+keyOverhead*hosts)
	for every := 1; every < most; every++ {
		if cost/(float64(every)*seconds) <= left {
			return every
		}
	}
	return max(most, 1)
}

// jittered is a wait of about so many periods, so that hosts that began together
// do not go on writing together. Its mean is every.
func jittered(every int, random func(n int) int) int {
	spread := every / 4
	if spread == 0 {
		return max(every, 1)
	}
	return every - spread + random(2*spread+1)
}

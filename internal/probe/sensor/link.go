package sensor

import (
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/exadev/regrade/internal/fitness"
)

const classNet = "sys/class/net"

// Linked is where the default route leaves, with the device below it that
// decided: eth0 of a bridge br0.
type Linked struct {
	fitness.Link
	Route  Route
	Device string // empty when no device below could be seen
}

// Link says whether the default route leaves by wire, by Wi-Fi, or by an
// interface whose link cannot be seen (R-185-07). A bridge, a bond, a VLAN and the
// like are followed to the devices below them; a tunnel, such as that of a mesh
// VPN, is unseen: what carries it may change at any time.
func Link(fsys fs.FS) (Linked, error) {
	route, err := defaultRoute(fsys)
	if err != nil {
		return Linked{}, err
	}
	w := walk{fsys: fsys, seen: map[string]bool{}}
	kind, device := w.kind(route.Interface)
	if w.fault != nil && kind == fitness.Unseen {
		return Linked{}, w.fault
	}
	return Linked{Link: fitness.Link{Kind: kind, Interface: route.Interface}, Route: route, Device: device}, nil
}

// walk follows devices downwards and visits each once, so that links which loop
// end.
type walk struct {
	fsys  fs.FS
	seen  map[string]bool
	fault *Fault
}

// maxDevices is more than any host stacks below its default route.
const maxDevices = 256

func (w *walk) kind(name string) (fitness.LinkKind, string) {
	if w.seen[name] || len(w.seen) >= maxDevices || !deviceName(name) {
		return fitness.Unseen, ""
	}
	w.seen[name] = true
	entries, err := fs.ReadDir(w.fsys, classNet+"/"+name)
	if err != nil {
		if w.fault == nil {
			w.fault = fileFault("/"+classNet+"/"+name, err)
		}
		return fitness.Unseen, ""
	}
	has := func(file string) bool {
		return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == file })
	}
	devtype := w.devtype(name)
	switch {
	case has("wireless") || has("phy80211") || devtype == "wlan":
		return fitness.WiFi, name
	case has("tun_flags") || devtype == "wireguard" || devtype == "wwan" || devtype == "bluetooth":
		return fitness.Unseen, ""
	}
	if below := w.below(name, entries); len(below) > 0 {
		return w.best(below)
	}
	switch {
	case has("device") && w.text(name, "type") == etherType:
		return fitness.Wired, name
	case has("bridge"):
		return fitness.Unseen, "" // without a port
	}
	return w.other(name)
}

// etherType is ARPHRD_ETHER; tunnels have others.
const etherType = "1"

// below are the devices that carry one: a bond's active one, a bridge's ports, or
// those that the kernel links as lower devices.
func (w *walk) below(name string, entries []fs.DirEntry) []string {
	if active := w.text(name, "bonding/active_slave"); deviceName(active) {
		return []string{active}
	}
	var below []string
	for _, e := range entries {
		if lower, ok := strings.CutPrefix(e.Name(), "lower_"); ok && deviceName(lower) {
			below = append(below, lower)
		}
	}
	if ports, err := fs.ReadDir(w.fsys, classNet+"/"+name+"/brif"); err == nil {
		for _, p := range ports {
			if deviceName(p.Name()) && !slices.Contains(below, p.Name()) {
				below = append(below, p.Name())
			}
		}
	}
	slices.Sort(below)
	return below
}

// best of several devices: a wire, else Wi-Fi. A bridge has its host's uplink
// beside the ends of containers, which are unseen, and beside an access point. A
// device that is down does not carry anything, unless all are.
func (w *walk) best(names []string) (fitness.LinkKind, string) {
	up := slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		return w.text(n, "operstate") == "down"
	})
	if len(up) == 0 {
		up = names
	}
	best, device := fitness.Unseen, ""
	for _, n := range up {
		switch kind, d := w.kind(n); {
		case kind == fitness.Wired:
			return kind, d
		case kind == fitness.WiFi && best == fitness.Unseen:
			best, device = kind, d
		}
	}
	return best, device
}

// other follows a veth to its other end, when that is in this network namespace
// too, and on to the bridge that it is a port of.
func (w *walk) other(name string) (fitness.LinkKind, string) {
	own, end := w.text(name, "ifindex"), w.text(name, "iflink")
	if _, err := strconv.ParseUint(end, 10, 31); err != nil || end == own || end == "0" {
		return fitness.Unseen, ""
	}
	devices, err := fs.ReadDir(w.fsys, classNet)
	if err != nil {
		return fitness.Unseen, ""
	}
	for _, d := range devices[:min(len(devices), 4*maxDevices)] {
		if !deviceName(d.Name()) || w.text(d.Name(), "ifindex") != end {
			continue
		}
		// Both ends name each other; anything else is not a pair.
		if w.text(d.Name(), "iflink") != own || w.seen[d.Name()] {
			return fitness.Unseen, ""
		}
		w.seen[d.Name()] = true
		master, err := w.master(d.Name())
		if err != nil {
			return fitness.Unseen, ""
		}
		return w.kind(master)
	}
	return fitness.Unseen, ""
}

// master is the bridge that a device is a port of.
func (w *walk) master(name string) (string, error) {
	target, err := fs.ReadLink(w.fsys, classNet+"/"+name+"/master")
	if err != nil {
		return "", err
	}
	master := target[strings.LastIndexByte(target, '/')+1:]
	if !deviceName(master) {
		return "", errors.New("no device name")
	}
	return master, nil
}

// devtype is what the driver calls the device, empty for a plain one.
func (w *walk) devtype(name string) string {
	for line := range strings.Lines(w.text(name, "uevent")) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVTYPE="); ok {
			return v
		}
	}
	return ""
}

func (w *walk) text(name, file string) string {
	if !deviceName(name) {
		return ""
	}
	raw, err := readFile(w.fsys, classNet+"/"+name+"/"+file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

// deviceName says whether a name can be an interface's: one path element of at
// most 15 bytes.
func deviceName(s string) bool {
	return s != "" && len(s) <= 15 && s != "." && s != ".." && !strings.ContainsAny(s, "/ \t\n\x00")
}

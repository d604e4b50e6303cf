package sensor

import (
	"io/fs"
	"strconv"
	"strings"
)

// Files with the kernel's main routing tables.
const (
	routes4 = "proc/net/route"
	routes6 = "proc/net/ipv6_route"
)

// Flags of a route (linux/route.h).
const (
	routeUp     = 0x0001
	routeReject = 0x0200
)

// Route is a default route.
type Route struct {
	Interface string
	Metric    uint32
	IPv6      bool
}

// defaultRoute is the IPv4 default route with the lowest metric, or the IPv6 one
// where there is no other: the kernel compares metrics only within one family.
// Of equal ones the first counts.
func defaultRoute(fsys fs.FS) (Route, error) {
	raw, err := readFile(fsys, routes4)
	if err != nil {
		return Route{}, fileFault("/"+routes4, err)
	}
	best, found, err := lowest(string(raw), parseRoute4)
	if err != nil {
		return Route{}, faultf(CodeBadRoutes, "/%s: %v", routes4, err)
	}
	if found {
		return best, nil
	}
	// A kernel without IPv6 has no such file.
	if raw, err = readFile(fsys, routes6); err == nil {
		if best, found, err = lowest(string(raw), parseRoute6); err != nil {
			return Route{}, faultf(CodeBadRoutes, "/%s: %v", routes6, err)
		}
	}
	if !found {
		return Route{}, faultf(CodeNoRoute, "there is no default route")
	}
	return best, nil
}

// lowest reads a table. parse gives false for a line that is no default route
// in use.
func lowest(table string, parse func(fields []string) (Route, bool, error)) (best Route, found bool, err error) {
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "Iface" {
			continue
		}
		r, ok, err := parse(fields)
		if err != nil {
			return Route{}, false, err
		}
		if ok && (!found || r.Metric < best.Metric) {
			best, found = r, true
		}
	}
	return best, found, nil
}

// parseRoute4 reads a line of /proc/net/route: interface, destination, gateway,
// flags, references, uses, metric, mask and more; addresses and flags in hex,
// the metric in decimal.
func parseRoute4(f []string) (Route, bool, error) {
	if len(f) < 8 {
		return Route{}, false, faultf(CodeBadRoutes, "a route of %d fields", len(f))
	}
	flags, err := strconv.ParseUint(f[3], 16, 32)
	if err != nil {
		return Route{}, false, faultf(CodeBadRoutes, "flags %q", f[3])
	}
	metric, err := strconv.ParseUint(f[6], 10, 32)
	if err != nil {
		return Route{}, false, faultf(CodeBadRoutes, "metric %q", f[6])
	}
	if !zeros(f[1]) || !zeros(f[7]) || !inUse(flags, f[0]) {
		return Route{}, false, nil
	}
	return Route{Interface: f[0], Metric: uint32(metric)}, true, nil
}

// parseRoute6 reads a line of /proc/net/ipv6_route: destination and its length,
// source and its length, next hop, metric, references, uses, flags, interface;
// all in hex.
func parseRoute6(f []string) (Route, bool, error) {
	if len(f) < 10 {
		return Route{}, false, faultf(CodeBadRoutes, "a route of %d fields", len(f))
	}
	flags, err := strconv.ParseUint(f[8], 16, 32)
	if err != nil {
		return Route{}, false, faultf(CodeBadRoutes, "flags %q", f[8])
	}
	metric, err := strconv.ParseUint(f[5], 16, 32)
	if err != nil {
		return Route{}, false, faultf(CodeBadRoutes, "metric %q", f[5])
	}
	if !zeros(f[0]) || !zeros(f[1]) || !zeros(f[3]) || !inUse(flags, f[9]) {
		return Route{}, false, nil
	}
	return Route{Interface: f[9], Metric: uint32(metric), IPv6: true}, true, nil
}

func inUse(flags uint64, device string) bool {
	return flags&routeUp != 0 && flags&routeReject == 0 && device != "lo" && device != "*"
}

func zeros(s string) bool { return s != "" && strings.Trim(s, "0") == "" }

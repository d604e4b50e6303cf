package procs

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Socket is one TCP socket that listens. PID is zero where the process is of another PID
// namespace, or may not be looked at.
type Socket struct {
	Address netip.Addr
	Port    int
	Inode   uint64
	PID     int
}

// listens is TCP_LISTEN in /proc/net/tcp.
const listens = "0A"

// Listening are the sockets of this network namespace that listen on one of the ports,
// by port and address. Two of one address and port are there twice: SO_REUSEPORT lets
// that be (k3s-facts §3.5).
func Listening(proc string, ps []Process, ports ...int) ([]Socket, error) {
	var out []Socket
	for _, name := range []string{"tcp", "tcp6"} {
		raw, err := os.ReadFile(filepath.Join(proc, "net", name))
		if errors.Is(err, fs.ErrNotExist) && name == "tcp6" {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("listening sockets: %w", err)
		}
		ss, err := parseSockets(string(raw))
		if err != nil {
			return nil, fmt.Errorf("listening sockets: %s: %w", name, err)
		}
		for _, s := range ss {
			if slices.Contains(ports, s.Port) {
				out = append(out, s)
			}
		}
	}
	owners(proc, ps, out)
	slices.SortFunc(out, func(a, b Socket) int {
		if a.Port != b.Port {
			return a.Port - b.Port
		}
		if c := a.Address.Compare(b.Address); c != 0 {
			return c
		}
		return a.PID - b.PID
	})
	return out, nil
}

// parseSockets reads a page of /proc/net/tcp or tcp6 (proc_net_tcp.txt of the kernel).
func parseSockets(page string) ([]Socket, error) {
	var out []Socket
	for i, line := range strings.Split(strings.TrimRight(page, "\n"), "\n") {
		f := strings.Fields(line)
		if i == 0 || len(f) < 10 || f[3] != listens {
			continue
		}
		address, port, ok := strings.Cut(f[1], ":")
		if !ok {
			return nil, fmt.Errorf("line %d has no local address", i+1)
		}
		ip, err := parseAddress(address)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		n, err := strconv.ParseUint(port, 16, 16)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		inode, err := strconv.ParseUint(f[9], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		out = append(out, Socket{Address: ip, Port: int(n), Inode: inode})
	}
	return out, nil
}

// parseAddress reads an address as the kernel prints it: words of four bytes, each in
// the machine's order, which is the little one on every machine that this runs on.
func parseAddress(s string) (netip.Addr, error) {
	raw, err := hex.DecodeString(s)
	if err != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.Addr{}, fmt.Errorf("address %q", s)
	}
	for i := 0; i < len(raw); i += 4 {
		slices.Reverse(raw[i : i+4])
	}
	ip, _ := netip.AddrFromSlice(raw)
	return ip, nil
}

// owners fills in whose each socket is, as far as that may be seen.
func owners(proc string, ps []Process, ss []Socket) {
	wanted := map[string]int{}
	for i, s := range ss {
		wanted[fmt.Sprintf("socket:[%d]", s.Inode)] = i
	}
	if len(wanted) == 0 {
		return
	}
	for _, p := range ps {
		dir := filepath.Join(proc, strconv.Itoa(p.PID), "fd")
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			link, err := os.Readlink(filepath.Join(dir, e.Name()))
			if err != nil {
				continue
			}
			// One that a child has inherited is its parent's, whom ps has first.
			if i, ok := wanted[link]; ok && ss[i].PID == 0 {
				ss[i].PID = p.PID
			}
		}
	}
}

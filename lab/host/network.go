package host

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Addresses of the lab's network. They exist in namespaces only, so every lab has the same.
var (
	subnet  = netip.MustParsePrefix("10.91.0.0/24")
	gateway = netip.MustParseAddr("10.91.0.1")
)

// firstHost is the last byte of the first host's address.
const firstHost = 11

// Bridge is the name of the lab's bridge in the lab's network namespace.
const Bridge = "br0"

// network is a namespace with the bridge in it. The machine's own namespace knows nothing of it, so neither its firewall
// rules nor its bridge settings touch the lab's frames.
type network struct {
	lan     string // name of the namespace
	gateway netip.Addr
	fd      int // the namespace, held open for dialling
}

func newNetwork(ctx context.Context, l *Lab) (*network, error) {
	n := &network{lan: namespaceName(l.name, "lan"), gateway: gateway, fd: -1}
	steps := [][]string{
		{"ip", "netns", "add", n.lan},
		{"ip", "-n", n.lan, "link", "set", "lo", "up"},
		{"ip", "-n", n.lan, "link", "add", Bridge, "type", "bridge", "forward_delay", "0", "stp_state", "0"},
		{"ip", "-n", n.lan, "addr", "add", fmt.Sprintf("%s/%d", gateway, subnet.Bits()), "dev", Bridge},
		{"ip", "-n", n.lan, "link", "set", Bridge, "up"},
	}
	for _, argv := range steps {
		if _, err := l.machine(ctx, argv...); err != nil {
			return n, err
		}
	}
	fd, err := unix.Open("/run/netns/"+n.lan, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return n, fmt.Errorf("open namespace %s: %w", n.lan, err)
	}
	n.fd = fd
	// Bridged frames must not go through iptables.
	return n, n.within(func() error {
		for _, name := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables", "bridge-nf-call-arptables"} {
			path := filepath.Join("/proc/sys/net/bridge", name)
			if _, err := os.Stat(path); err != nil {
				continue
			}
			if err := os.WriteFile(path, []byte("0"), 0o644); err != nil {
				return fmt.Errorf("set %s: %w", name, err)
			}
		}
		return nil
	})
}

// within runs work on a thread that is in the lab's network namespace. Sockets and devices made there stay there.
func (n *network) within(work func() error) error {
	failed := make(chan error, 1)
	go func() {
		// The thread is not given back: it ends with this goroutine, so no other code can find itself in the namespace.
		runtime.LockOSThread()
		if err := unix.Setns(n.fd, unix.CLONE_NEWNET); err != nil {
			failed <- fmt.Errorf("enter namespace %s: %w", n.lan, err)
			return
		}
		failed <- work()
	}()
	return <-failed
}

func (n *network) close() {
	if n != nil && n.fd >= 0 {
		_ = unix.Close(n.fd)
		n.fd = -1
	}
}

// DialContext connects from the lab's network, as a machine beside the hosts would. The address must be numeric.
func (l *Lab) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := l.network.within(func() error {
		var dialer net.Dialer
		var err error
		conn, err = dialer.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Within runs work on a thread that is in the lab's network namespace.
func (l *Lab) Within(work func() error) error { return l.network.within(work) }

// Gateway is the address of the lab's network that is not a host: what DialContext and Command come from.
func (l *Lab) Gateway() netip.Addr { return gateway }

// LAN is the name of the lab's network namespace, for ip -n.
func (l *Lab) LAN() string { return l.network.lan }

// Command prepares a command of the machine that runs on the lab's network and ends with the lab at the latest.
func (l *Lab) Command(ctx context.Context, argv ...string) (*exec.Cmd, error) {
	folders, err := makeCgroup(l.name, "lan")
	if err != nil {
		return nil, err
	}
	// In the end the process is argv itself, not the shell: each step replaces the one before.
	return enterCgroups(ctx, folders, append([]string{"nsenter", "--net=/run/netns/" + l.network.lan, "--"}, argv...)), nil
}

// Machine runs a command of the machine itself; a status other than 0 is an error.
func (l *Lab) Machine(ctx context.Context, argv ...string) (string, error) {
	return l.machine(ctx, argv...)
}

// port is the host's end of its cable in the lab's network namespace.
func (h *Host) port() string { return "p-" + strconv.Itoa(h.number) }

// plug makes the host's network namespace with its address, replacing what an earlier boot left: after a reboot a real
// host has no connection, no rule and no address of before. Faults that are on stay on.
func (h *Host) plug(ctx context.Context) error {
	ns := h.netns()
	if _, err := os.Stat("/run/netns/" + ns); err == nil {
		if _, err := h.lab.machine(ctx, "ip", "netns", "delete", ns); err != nil {
			return err
		}
	}
	// The old cable goes when the old namespace does, but not at once.
	for _, device := range []string{h.port()} {
		_, _ = h.lab.machine(ctx, "ip", "-n", h.lab.network.lan, "link", "delete", device)
	}
	lan := h.lab.network.lan
	h.mu.Lock()
	bridge, cut := h.bridge, h.unplugged
	h.mu.Unlock()
	steps := [][]string{
		{"ip", "netns", "add", ns},
		{"ip", "-n", lan, "link", "add", h.port(), "type", "veth", "peer", "name", "eth0", "address", h.mac(), "netns", ns},
		{"ip", "-n", lan, "link", "set", h.port(), "master", bridge},
		{"ip", "-n", ns, "link", "set", "lo", "up"},
		{"ip", "-n", ns, "addr", "add", fmt.Sprintf("%s/%d", h.ip, subnet.Bits()), "dev", "eth0"},
		{"ip", "-n", ns, "link", "set", "eth0", "up"},
		{"ip", "-n", ns, "route", "add", "default", "via", gateway.String()},
		{"nsenter", "--net=/run/netns/" + ns, "--", "sysctl", "-qw", "net.ipv4.ip_forward=1"},
	}
	if !cut {
		steps = append(steps, []string{"ip", "-n", lan, "link", "set", h.port(), "up"})
	}
	for _, argv := range steps {
		if _, err := h.lab.machine(ctx, argv...); err != nil {
			return fmt.Errorf("plug in host %s: %w", h.name, err)
		}
	}
	return h.applyRules(ctx)
}

func (h *Host) netns() string { return namespaceName(h.lab.name, h.name) }

func (h *Host) mac() string { return fmt.Sprintf("02:91:00:00:00:%02x", h.number) }

// MoveTo connects the host's cable to another bridge of the lab's network namespace. It holds over reboots.
func (h *Host) MoveTo(ctx context.Context, bridge string) error {
	if _, err := h.lab.machine(ctx, "ip", "-n", h.lab.network.lan, "link", "set", h.port(), "master", bridge); err != nil {
		return fmt.Errorf("move host %s to %s: %w", h.name, bridge, err)
	}
	h.mu.Lock()
	h.bridge = bridge
	h.mu.Unlock()
	return nil
}

// Unplug pulls the host's cable (the host sees its carrier go) or puts it back. It holds over reboots.
func (h *Host) Unplug(ctx context.Context, out bool) error {
	state := "up"
	if out {
		state = "down"
	}
	if _, err := h.lab.machine(ctx, "ip", "-n", h.lab.network.lan, "link", "set", h.port(), state); err != nil {
		return fmt.Errorf("cable of host %s %s: %w", h.name, state, err)
	}
	h.mu.Lock()
	h.unplugged = out
	h.mu.Unlock()
	return nil
}

// rulesChain holds the lab's packet rules of a host. It hangs in the raw table, before anything a kube-proxy writes.
const rulesChain = "REGRADE-LAB"

// SetRules replaces the packet rules kept under key in the host's network namespace: argument lists of iptables after
// "-A CHAIN" ("-p tcp --dport 2380 -j DROP"). They hold over reboots; no rules means that the key is gone.
func (h *Host) SetRules(ctx context.Context, key string, rules ...[]string) error {
	h.mu.Lock()
	if len(rules) == 0 {
		delete(h.rules, key)
	} else {
		h.rules[key] = rules
	}
	h.mu.Unlock()
	return h.applyRules(ctx)
}

func (h *Host) applyRules(ctx context.Context) error {
	h.mu.Lock()
	script := "*raw\n:" + rulesChain + " - [0:0]\n"
	some := false
	for _, key := range sortedKeys(h.rules) {
		for _, rule := range h.rules[key] {
			some = true
			script += "-A " + rulesChain
			for _, word := range rule {
				script += " " + word
			}
			script += "\n"
		}
	}
	hooked := h.hooked
	if some && !hooked {
		script += "-I PREROUTING 1 -j " + rulesChain + "\n-I OUTPUT 1 -j " + rulesChain + "\n"
	}
	script += "COMMIT\n"
	h.hooked = hooked || some
	h.mu.Unlock()
	if !some && !hooked {
		return nil
	}
	return h.restoreRules(ctx, script)
}

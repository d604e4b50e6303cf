package sensor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/exadev/regrade/internal/fitness"
)

const (
	head4   = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
	nets6   = "fe800000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0\n"
	reject6 = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n"
)

func route4(device, metric string) string {
	return device + "\t00000000\t0100A8C0\t0003\t0\t0\t" + metric + "\t00000000\t0\t0\t0\n"
}

func route6(device, metric string) string {
	return strings.Repeat("0", 32) + " 00 " + strings.Repeat("0", 32) + " 00 fe800000000000000000000000000001 " + metric + " 00000001 00000000 00000003     " + device + "\n"
}

// build makes a file system of what a host would have. A value that begins with
// -> is a link.
func build(files map[string]string) fstest.MapFS {
	m := fstest.MapFS{}
	for name, text := range files {
		if target, ok := strings.CutPrefix(text, "->"); ok {
			m[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
			continue
		}
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return m
}

// devices adds /sys/class/net/NAME/FILE for "NAME/FILE" or "NAME/FILE=TEXT".
func devices(routes string, list ...string) map[string]string {
	files := map[string]string{routes4: head4 + routes}
	for _, d := range list {
		name, text, _ := strings.Cut(d, "=")
		files[classNet+"/"+name] = text
	}
	return files
}

var ethernet = []string{"eth0/device/vendor", "eth0/type=1\n", "eth0/uevent=INTERFACE=eth0\nIFINDEX=2\n", "eth0/ifindex=2", "eth0/iflink=2", "eth0/operstate=up"}

func with(list []string, more ...string) []string {
	return append(append([]string{}, list...), more...)
}

func TestWhereTheDefaultRouteLeaves(t *testing.T) { // R-185-07
	wlan := []string{"wlan0/device/vendor", "wlan0/type=1", "wlan0/uevent=DEVTYPE=wlan\nINTERFACE=wlan0\n", "wlan0/operstate=up"}
	only6 := devices("", ethernet...)
	only6[routes6] = nets6 + reject6 + route6("eth0", "00000400")
	both6 := devices(route4("wlan0", "600"), with(wlan, ethernet...)...)
	both6[routes6] = route6("eth0", "00000001")
	loop := devices(route4("br0", "0"), "br0/bridge/x", "br0/lower_br1/x", "br1/bridge/x", "br1/lower_br0/x")
	for name, tt := range map[string]struct {
		files  map[string]string
		kind   fitness.LinkKind
		device string
		code   string
	}{
		"a network card":               {devices(route4("eth0", "0"), ethernet...), fitness.Wired, "eth0", ""},
		"Wi-Fi":                        {devices(route4("wlan0", "600"), wlan...), fitness.WiFi, "wlan0", ""},
		"Wi-Fi of an older driver":     {devices(route4("eth0", "0"), with(ethernet, "eth0/wireless/status")...), fitness.WiFi, "eth0", ""},
		"the lower metric wins":        {devices(route4("wlan0", "600")+route4("eth0", "100"), with(wlan, ethernet...)...), fitness.Wired, "eth0", ""},
		"a route that is down":         {devices("wlan0\t00000000\t0100A8C0\t0002\t0\t0\t0\t00000000\t0\t0\t0\n"+route4("eth0", "100"), with(wlan, ethernet...)...), fitness.Wired, "eth0", ""},
		"a route that rejects":         {devices("wlan0\t00000000\t0100A8C0\t0201\t0\t0\t0\t00000000\t0\t0\t0\n"+route4("eth0", "100"), with(wlan, ethernet...)...), fitness.Wired, "eth0", ""},
		"a network and no default":     {devices("eth0\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n", ethernet...), "", "", CodeNoRoute},
		"IPv6 alone":                   {only6, fitness.Wired, "eth0", ""},
		"IPv4 comes before IPv6":       {both6, fitness.WiFi, "wlan0", ""},
		"a tunnel":                     {devices(route4("tailscale0", "0"), "tailscale0/tun_flags=0x1001", "tailscale0/type=65534"), fitness.Unseen, "", ""},
		"WireGuard":                    {devices(route4("wg0", "0"), "wg0/uevent=DEVTYPE=wireguard\n", "wg0/type=65534"), fitness.Unseen, "", ""},
		"a modem":                      {devices(route4("wwan0", "0"), "wwan0/uevent=DEVTYPE=wwan\n", "wwan0/device/x", "wwan0/type=1"), fitness.Unseen, "", ""},
		"a device of no Ethernet":      {devices(route4("ib0", "0"), "ib0/device/x", "ib0/type=32"), fitness.Unseen, "", ""},
		"a bridge with a card":         {devices(route4("br0", "0"), with(ethernet, "br0/bridge/x", "br0/lower_eth0/x", "br0/lower_veth1/x", "veth1/ifindex=9", "veth1/iflink=2")...), fitness.Wired, "eth0", ""},
		"a bridge's ports":             {devices(route4("br0", "0"), with(ethernet, "br0/bridge/x", "br0/brif/eth0/x")...), fitness.Wired, "eth0", ""},
		"a bridge's access point":      {devices(route4("br0", "0"), with(with(ethernet, wlan...), "br0/lower_eth0/x", "br0/lower_wlan0/x")...), fitness.Wired, "eth0", ""},
		"a bridge whose card is down":  {devices(route4("br0", "0"), with(with(wlan, "eth1/device/x", "eth1/type=1", "eth1/operstate=down"), "br0/lower_eth1/x", "br0/lower_wlan0/x")...), fitness.WiFi, "wlan0", ""},
		"a bridge without ports":       {devices(route4("br0", "0"), "br0/bridge/x"), fitness.Unseen, "", ""},
		"a bond on its active one":     {devices(route4("bond0", "0"), with(with(ethernet, wlan...), "bond0/bonding/active_slave=wlan0\n", "bond0/lower_eth0/x", "bond0/lower_wlan0/x")...), fitness.WiFi, "wlan0", ""},
		"a VLAN on a bond":             {devices(route4("bond0.7", "0"), with(ethernet, "bond0.7/uevent=DEVTYPE=vlan\n", "bond0.7/lower_bond0/x", "bond0/bonding/active_slave=eth0")...), fitness.Wired, "eth0", ""},
		"a veth to a container's host": {devices(route4("eth0", "0"), "eth0/ifindex=2", "eth0/iflink=17", "eth0/type=1"), fitness.Unseen, "", ""},
		"a veth to a bridge beside it": {func() map[string]string {
			f := devices(route4("v0", "0"), with(ethernet, "v0/ifindex=5", "v0/iflink=6", "v1/ifindex=6", "v1/iflink=5", "br0/lower_eth0/x", "br0/lower_v1/x")...)
			f[classNet+"/v1/master"] = "->../br0"
			return f
		}(), fitness.Wired, "eth0", ""},
		"devices that lie below each other": {loop, fitness.Unseen, "", ""},
		"a device below itself":             {devices(route4("br0", "0"), "br0/bridge/x", "br0/lower_br0/x"), fitness.Unseen, "", ""},
		"a device that sysfs does not have": {devices(route4("eth7", "0"), ethernet...), "", "", CodeUnreadable},
		"no routing table":                  {map[string]string{"sys/x": ""}, "", "", CodeUnreadable},
		"a routing table of garbage":        {devices("eth0 zz\n", ethernet...), "", "", CodeBadRoutes},
		"a metric that is no number":        {devices(route4("eth0", "-1"), ethernet...), "", "", CodeBadRoutes},
		"a name that leads elsewhere":       {devices(route4("../../..", "0"), ethernet...), fitness.Unseen, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := Link(build(tt.files))
			if f, ok := errors.AsType[*Fault](err); ok != (tt.code != "") || ok && f.Code != tt.code {
				t.Fatalf("got %+v, %v, want %q", l, err, tt.code)
			}
			if l.Kind != tt.kind || l.Device != tt.device {
				t.Errorf("got %+v, want %s by %q", l, tt.kind, tt.device)
			}
		})
	}
}

// sysfs has links that loop: each device links to the hardware below it, which
// links to the class above. And a link may lead nowhere, to itself, or out of
// the root.
func TestLinksThatLoopAreFollowedSafely(t *testing.T) { // R-185-07, R-185-40
	root := t.TempDir()
	mkdir := func(p string) {
		if err := os.MkdirAll(filepath.Join(root, p), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, p string) {
		if err := os.Symlink(target, filepath.Join(root, p)); err != nil {
			t.Fatal(err)
		}
	}
	write := func(p, text string) {
		if err := os.WriteFile(filepath.Join(root, p), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mkdir("proc/net")
	mkdir("sys/class/net")
	mkdir("sys/devices/pci0/net/eth0")
	write("sys/devices/pci0/net/eth0/type", "1\n")
	link("../../../pci0", "sys/devices/pci0/net/eth0/device")
	link("../../../../class/net", "sys/devices/pci0/net/eth0/subsystem")
	link("../../devices/pci0/net/eth0", "sys/class/net/eth0")
	mkdir("sys/devices/virtual/net/br0/brif")
	link("../../../../pci0/net/eth0/brport", "sys/devices/virtual/net/br0/brif/eth0")
	link("../../../pci0/net/eth0", "sys/devices/virtual/net/br0/lower_eth0")
	link("../../../virtual/net/br0", "sys/devices/pci0/net/eth0/upper_br0")
	link("../../../virtual/net/br0", "sys/devices/pci0/net/eth0/master")
	link("../../devices/virtual/net/br0", "sys/class/net/br0")
	link("self", "sys/class/net/self")
	link("../../../../../../../../../../../etc", "sys/class/net/out")
	open := func() fs.FS {
		r, err := os.OpenRoot(root)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		return r.FS()
	}
	for name, tt := range map[string]struct {
		device string
		kind   fitness.LinkKind
		fails  bool
	}{
		"a card":                        {"eth0", fitness.Wired, false},
		"a bridge":                      {"br0", fitness.Wired, false},
		"a link to itself":              {"self", "", true},
		"a link that leads out of root": {"out", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			write("proc/net/route", head4+route4(tt.device, "0"))
			l, err := Link(open())
			if (err != nil) != tt.fails || l.Kind != tt.kind {
				t.Errorf("got %+v, %v", l, err)
			}
		})
	}
}

// The machine's own sysfs (R-185-40).
func TestThisMachinesLinkIsRead(t *testing.T) {
	l, err := Link(os.DirFS("/"))
	if f, ok := errors.AsType[*Fault](err); ok && f.Code == CodeNoRoute {
		t.Skip("this machine has no default route")
	}
	if err != nil || l.Kind == "" || l.Interface == "" {
		t.Errorf("%+v, %v", l, err)
	}
	t.Logf("%+v", l)
}

func FuzzLink(f *testing.F) {
	f.Add(route4("eth0", "0"), route6("eth0", "400"), "DEVTYPE=vlan\n", "5")
	f.Add(route4("br0", "0"), "", "", "2")
	f.Add("eth0 x", reject6, "DEVTYPE=", "")
	f.Fuzz(func(t *testing.T, four, six, uevent, index string) {
		files := devices(four, with(ethernet, "br0/lower_eth0/x", "br0/lower_br0/x")...)
		files[routes6] = six
		files[classNet+"/eth0/uevent"], files[classNet+"/eth0/iflink"] = uevent, index
		l, err := Link(build(files))
		if err == nil && l.Kind != fitness.Wired && l.Kind != fitness.WiFi && l.Kind != fitness.Unseen {
			t.Errorf("%+v", l)
		}
	})
}

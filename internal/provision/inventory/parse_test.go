package inventory_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/provision/inventory"
)

// flags are some of those of `regrade manifests`.
var flags = []string{
	"actuator-configmap", "cooldown", "dry-run", "heartbeat", "label-prefix", "max-servers", "namespace", "operation-timeout", "period",
	"runner-selector", "target",
}

const least = `hosts:
  - {name: n1, address: 10.0.0.1, role: server}
  - {name: n2, address: 10.0.0.2, role: server}
  - {name: n3, address: 10.0.0.3, role: server}
  - {name: n4, address: 10.0.0.4, role: agent, eligible: true}
  - {name: n5, address: 10.0.0.5, role: agent}
`

func parsed(t testing.TB, text string) inventory.Fleet {
	t.Helper()
	f, err := inventory.Parse([]byte(text), flags)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestTheLeastFileTakesTheDefaults(t *testing.T) {
	f := parsed(t, least)
	if f.MaxServers != 5 || f.Target() != 3 || len(f.Hosts) != 5 {
		t.Errorf("%+v", f)
	}
	want := inventory.Host{
		Name: "n1", Address: "10.0.0.1", SSH: "10.0.0.1", Platform: inventory.Native, Role: fleet.RoleServer, Eligible: true,
		JoinURL: "https://10.0.0.1:6443", Line: 2,
	}
	if d := cmp.Diff(want, f.Hosts[0]); d != "" {
		t.Error(d)
	}
	if h := f.Hosts[4]; h.Eligible || h.Takes() {
		t.Errorf("an agent is eligible only where the file says so: %+v", h)
	}
}

func TestAllThatAFileCanSay(t *testing.T) {
	f := parsed(t, `
max-servers: 7
settings:
  target: 5
  dry-run: false
  label-prefix: role.example/
  cooldown: 1h
hosts:
  - name: n1.example
    address: fd00::1
    ssh: root@[fd00::1]:22
    platform: docker
    role: server
    eligible: false
    pinned: true
    node-ip: fd00::1, 10.0.0.1
    join-url: https://n1.example:16443
    labels: {rack: 12, topology.kubernetes.io/zone: a}
    project: /opt/k3s
    docker: {project: fleet}
    settings: {docker: {project: fleet}, period: 20s, levels: {enabled: true, some: 12.0, full: 4.5}}
  - {name: n2, address: fd00::2, role: server, ssh: local}
  - {name: n3, address: n3.example, role: server, platform: docker}
`)
	want := inventory.Fleet{
		MaxServers: 7,
		Settings:   []inventory.Setting{{"target", "5", 4}, {"dry-run", "false", 5}, {"label-prefix", "role.example/", 6}, {"cooldown", "1h", 7}},
		Hosts: []inventory.Host{
			{
				Name: "n1.example", Address: "fd00::1", SSH: "root@[fd00::1]:22", Platform: inventory.Docker, Role: fleet.RoleServer, Pinned: true,
				NodeIP: "fd00::1, 10.0.0.1", JoinURL: "https://n1.example:16443", Labels: map[string]string{"rack": "12", "topology.kubernetes.io/zone": "a"},
				Project: "/opt/k3s", Docker: &inventory.Project{Project: "fleet"}, Settings: map[string]any{
					"docker": map[string]any{"project": "fleet"}, "period": "20s",
					"levels": map[string]any{"enabled": true, "some": int64(12), "full": 4.5},
				},
			},
			{Name: "n2", Address: "fd00::2", SSH: inventory.Local, Platform: inventory.Native, Role: fleet.RoleServer, Eligible: true, JoinURL: "https://[fd00::2]:6443"},
			{Name: "n3", Address: "n3.example", SSH: "n3.example", Platform: inventory.Docker, Role: fleet.RoleServer, Eligible: true, JoinURL: "https://n3.example:6443", Project: inventory.DefaultProject},
		},
	}
	if d := cmp.Diff(want, f, cmpopts.IgnoreFields(inventory.Host{}, "Line")); d != "" {
		t.Error(d)
	}
}

func TestEveryMistakeHasItsLine(t *testing.T) {
	more := func(keys string) string {
		return least + "  - {name: n6, address: 10.0.0.6, role: agent, " + keys + "}\n"
	}
	for name, c := range map[string]struct{ yaml, want string }{
		"an unknown key of a host":               {more("elligible: true"), "line 7: hosts[5].elligible is unknown; did you mean eligible?"},
		"an underscore":                          {more("node_ip: 10.0.0.6"), "line 7: hosts[5].node_ip is unknown; did you mean node-ip?"},
		"a key that is like no other":            {more("colour: red"), "line 7: hosts[5].colour is unknown"},
		"a host.yaml key beside the host's":      {more("levels: {enabled: true}"), "line 7: hosts[5].levels is unknown; write it under settings of this host"},
		"a key twice":                            {more("role: agent"), "line 7: hosts[5].role is there twice, first in line 7"},
		"an unknown key of the fleet":            {least + "host: []\n", "line 7: host is unknown; did you mean hosts?"},
		"a setting beside settings":              {least + "target: 5\n", "line 7: target is unknown; write it under settings"},
		"max-servers below settings":             {least + "settings:\n  max-servers: 5\n", "line 8: settings.max-servers is unknown; write it at the top of the file, beside settings"},
		"an unknown setting":                     {least + "settings:\n  dryrun: true\n", "line 8: settings.dryrun is unknown; did you mean dry-run?"},
		"a setting that is a list":               {least + "settings:\n  target: [3]\n", "line 8: settings.target: want one value, not a list or a mapping"},
		"a setting without a value":              {least + "settings:\n  target:\n", "line 8: settings.target: has no value"},
		"a number of servers":                    {least + "max-servers: many\n", "line 7: max-servers: many, want a whole number of 1 to 1000"},
		"no hosts":                               {"max-servers: 5\n", "hosts is missing: want a list with at least one host"},
		"an empty list of hosts":                 {"hosts: []\n", "line 1: hosts: want a list with at least one host"},
		"no server":                              {"hosts:\n  - {name: n1, address: 10.0.0.1, role: agent}\n", "hosts: none has the role server"},
		"a host that is a word":                  {"hosts: [n1]\n", "line 1: hosts[0]: want keys and values, like key: value"},
		"a host without a role":                  {"hosts:\n  - {name: n1, address: 10.0.0.1}\n", "line 2: hosts[0]: role is missing"},
		"a name in capitals":                     {more("name: x") + "  - {name: N7, address: 10.0.0.7, role: agent}\n", "line 8: hosts[6].name: name \"N7\": want lower-case"},
		"a name twice":                           {least + "  - {name: n1, address: 10.0.0.6, role: agent}\n", "line 7: hosts[5].name: n1 is that of hosts[0], too"},
		"an address twice":                       {least + "  - {name: n6, address: \"::ffff:10.0.0.1\", role: agent}\n", "hosts[5].address: 10.0.0.1 is that of hosts[0], too"},
		"an SSH target twice":                    {more("ssh: 10.0.0.1"), "hosts[5].ssh: 10.0.0.1 is that of hosts[0], too"},
		"a join URL twice":                       {more("join-url: \"https://10.0.0.1:6443/\""), "hosts[5].join-url: \"https://10.0.0.1:6443\" is that of hosts[0], too"},
		"an address that is none":                {least + "  - {name: n6, address: 10.0.0.300, role: agent}\n", "line 7: hosts[5].address: 10.0.0.300 is neither an IP address nor a DNS name"},
		"an address of one host alone":           {least + "  - {name: n6, address: 127.0.0.1, role: agent}\n", "127.0.0.1 is no address at which other hosts reach this one"},
		"a join URL that is none":                {more("join-url: \"http://10.0.0.6:6443\""), "hosts[5].join-url: \"http://10.0.0.6:6443\", want https://HOST:6443"},
		"an SSH option":                          {more("ssh: -oProxyCommand=x"), "hosts[5].ssh: -oProxyCommand=x: want [user@]host[:port]"},
		"an SSH port that is none":               {more("ssh: \"a:99999\""), "hosts[5].ssh: \"a:99999\": want"},
		"a platform":                             {more("platform: podman"), "hosts[5].platform: podman, want native or docker"},
		"a role":                                 {more("x: y") + "  - {name: n7, address: 10.0.0.7, role: voter}\n", "line 8: hosts[6].role: voter, want server or agent"},
		"a truth that is none":                   {more("eligible: yes"), "hosts[5].eligible: yes, want true or false"},
		"an agent that is pinned":                {more("pinned: true"), "hosts[5].pinned: only a server's vote can be pinned"},
		"a node IP that is none":                 {more("node-ip: eth0"), "hosts[5].node-ip: eth0: want an IP address"},
		"a project of a native host":             {more("project: /srv/k3s"), "hosts[5].project: is for platform docker alone"},
		"a project by a relative path":           {more("platform: docker, project: k3s"), "hosts[5].project: k3s is no clean absolute path of a folder"},
		"a label's key":                          {more("labels: {a b: c}"), `hosts[5].labels."a b": "a b" is no key of a label`},
		"a label's value":                        {more("labels: {a: b c}"), `hosts[5].labels.a: "b c" is no value of a label`},
		"a label of regrade's":                   {more("labels: {github-runner.exadev.com/voter-eligible: true}"), "labels under github-runner.exadev.com/ are regrade's own; eligible and pinned are keys of the host"},
		"a label of regrade's by its own prefix": {more("labels: {x.example/voter-pinned: true}") + "settings: {label-prefix: x.example/}\n", "labels under x.example/ are regrade's own"},
		"a label with which no kubelet starts":   {more("labels: {node-role.kubernetes.io/worker: true}"), "a kubelet does not start with a label under node-role.kubernetes.io"},
		"an unknown key of host.yaml":            {more("settings: {levels: {cool-down: 1h}}"), "line 7: hosts[5].settings.levels.cool-down is unknown; did you mean cooldown?"},
		"a host.yaml key twice":                  {more("settings: {period: 5s, period: 6s}"), "hosts[5].settings.period is there twice"},
		"a host.yaml key of another type":        {more("settings: {levels: {enabled: 1}}"), "hosts[5].settings.levels.enabled: 1, want true or false"},
		"a number where text belongs":            {more("settings: {log-level: 1}"), "hosts[5].settings.log-level: 1, want text; put it into quotes"},
		"a duration that is none":                {more("settings: {period: soon}"), "hosts[5].settings.period: soon, want a duration like 15s"},
		"a negative number":                      {more("settings: {min-free-mib: -1}"), "hosts[5].settings.min-free-mib: -1, want a number"},
		"no number at all":                       {more("settings: {levels: {some: .nan}}"), "hosts[5].settings.levels.some: .nan, want a number"},
		"one value for a list":                   {more("settings: {allowed-flags: x}"), "hosts[5].settings.allowed-flags: want a list"},
		"a host.yaml value without sense":        {least + "  - name: n6\n    address: 10.0.0.6\n    role: agent\n    settings:\n      levels:\n        voters: 4\n", "line 12: hosts[5].settings.levels.voters: 4 is no odd number of at least 3"},
		"the node in a host's settings":          {more("settings: {node: n7}"), "hosts[5].settings.node: it is the host's name"},
		"a fleet's setting in a host's":          {more("settings: {label-prefix: x.example/}"), "hosts[5].settings.label-prefix: write it under settings of the fleet"},
		"a platform in a host's settings":        {more("settings: {platform: docker}"), "hosts[5].settings.platform: may be command on a native host"},
		"another data folder on docker":          {more("platform: docker, settings: {data-dir: /data}"), "hosts[5].settings.data-dir: \"/data\": on docker it is always"},
		"a fleet's setting that no host takes":   {least + "settings:\n  operation-timeout: 2h\n", "line 8: settings.operation-timeout: 2h0m0s is not between 10s and 1h"},
		"a fleet's duration that is none":        {least + "settings:\n  period: soon\n", "line 8: settings.period: soon: want seconds like 300"},
		"a namespace that is none":               {least + "settings:\n  namespace: X\n", "line 8: settings.namespace: namespace \"X\""},
		"a prefix that is none":                  {least + "settings:\n  label-prefix: x\n", "line 8: settings.label-prefix: label prefix \"x\""},
		"an alias":                               {least + "max-servers: *a\n", "unknown anchor"},
		"an anchor":                              {least + "max-servers: &a 5\n", "line 7: &a is an anchor"},
		"an alias of an anchor":                  {least + "max-servers: &a 5\nsettings: {target: *a}\n", "line 8: *a is an alias"},
		"a tag":                                  {least + "max-servers: !!str 5\n", "line 7: !!str is a tag"},
		"a second document":                      {least + "---\nhosts: []\n", "a second document begins"},
		"an empty file":                          {"", "the file is empty"},
		"a comment alone":                        {"# nothing\n", "the file is empty"},
		"a list":                                 {"- a\n", "line 1: want keys and values"},
		"no YAML":                                {"hosts: [\n", "yaml: line"},
		"a file that is too large":               {strings.Repeat("#", 1<<20+1), "bytes are more than"},
		"too many hosts":                         {"hosts:\n" + strings.Repeat("  - {}\n", 1001), "line 2: hosts: 1001 are more than 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := inventory.Parse([]byte(c.yaml), flags)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
			if d := cmp.Diff(inventory.Fleet{}, f); d != "" {
				t.Errorf("refused, and a fleet all the same: %s", d)
			}
		})
	}
}

func TestAllMistakesAtOnceInTheOrderOfTheFile(t *testing.T) {
	_, err := inventory.Parse([]byte(`settings: {perod: 5}
hosts:
  - {name: n1, address: 10.0.0.1, role: server, pined: true}
  - {name: N2, role: server, eligible: perhaps}
max-servers: 0
`), flags)
	want := []string{
		"line 1: settings.perod is unknown; did you mean period?",
		"line 3: hosts[0].pined is unknown; did you mean pinned?",
		"line 4: hosts[1]: address is missing",
		`line 4: hosts[1].name: name "N2": want lower-case letters, digits, dashes and dots, at most 253, each part beginning and ending with a letter or digit`,
		"line 4: hosts[1].eligible: perhaps, want true or false",
		"line 5: max-servers: 0, want a whole number of 1 to 1000",
	}
	if err == nil {
		t.Fatal("accepted")
	}
	if d := cmp.Diff(want, strings.Split(err.Error(), "\n")); d != "" {
		t.Error(d)
	}
}

func TestOfManyMistakesTheFirstAreSaid(t *testing.T) {
	_, err := inventory.Parse([]byte(least+strings.Repeat("  - {}\n", 40)), flags)
	if err == nil {
		t.Fatal("accepted")
	}
	if lines := strings.Split(err.Error(), "\n"); len(lines) != 51 || lines[0] != "line 7: hosts[5]: name is missing" || lines[50] != "and 70 more" {
		t.Errorf("%d lines, the first %q, the last %q", len(lines), lines[0], lines[len(lines)-1])
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(least))
	f.Add([]byte("settings: {period: 5, label-prefix: a/}\nmax-servers: 9\n" + least))
	f.Add([]byte("hosts:\n- {name: a, address: b, role: server, settings: {levels: {some: 1e3}, docker: {identity: [/a]}}}\n"))
	f.Add([]byte("settings: {heartbeat: \"\\0 \\x85\\u2028\"}\nhosts:\n- {name: a, address: b, role: server, settings: {min-free-mib: 0x1F, levels: {some: 1.5e1, full: -0.0, floor-mib: 1_0}}}\n"))
	f.Add([]byte("hosts: [{labels: {a: b}, <<: {c: d}, ? [x] : y}]\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		fl, err := inventory.Parse(raw, flags)
		if err != nil {
			return
		}
		if len(fl.Hosts) == 0 || fl.MaxServers < 1 {
			t.Fatalf("accepted: %+v", fl)
		}
		for _, h := range fl.Hosts {
			taken(t, fl, h)
		}
		again, err := inventory.Parse([]byte(printed(t, fl)), flags)
		if err != nil {
			t.Fatalf("printed, it is refused: %v", err)
		}
		if d := cmp.Diff(fl, again, wheresoever); d != "" {
			t.Fatal(d)
		}
	})
}

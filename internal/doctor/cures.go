package doctor

// Cure is what a person does about a code, in a sentence.
func Cure(code string) string {
	if code == "" {
		return ""
	}
	if s, ok := cures[code]; ok {
		return s
	}
	return "docs/operations.md and docs/interface.md say what it means"
}

// cures are one sentence a code: what to do first. The pages say the rest.
var cures = map[string]string{
	// Of a host.
	CodeSettings:         "correct the file that it names; `regrade host status` reads it again",
	CodeUnseen:           "put right what it names; the daemon does nothing on half a sight",
	CodeNoKubeconfig:     "write it anew from the ServiceAccount's token (docs/operations.md, step 4), mode 0600",
	CodeOpenKubeconfig:   "chmod 0600 it, and have its token made anew if others were on this host",
	CodeCredential:       "write the kubeconfig anew from the ServiceAccount's token (docs/operations.md, step 4)",
	CodeNoAPI:            "look at the API servers that host.yaml names; what only they know was not judged",
	CodeNoNode:           "node in host.yaml must be the Node's name, in lower case",
	CodeSkew:             "set the clock by NTP (chrony, systemd-timesyncd); a host with such a clock takes no part in swaps",
	CodeClockUnknown:     "ask again once an API server answers, or compare by hand with another host",
	CodeNoRole:           "write server or agent into /etc/github-runner/role, whichever k3s runs; the daemon does it from an inventory",
	CodeBadRole:          "write server or agent into it, whichever runs; the daemon does nothing before",
	CodeBadIdentity:      "put it back from `regrade host status` of a voter, or delete it once you know that this host has no member",
	CodeBadJoining:       "delete it; a swap that is under way has it written anew",
	CodeBothMay:          "write the role that runs, server or agent, into /etc/github-runner/role",
	CodeNeitherMay:       "the two reasons say which file is in the way; after a lost datastore a swap or `regrade host allow-join` lets the server in",
	CodeBothRun:          "stop the unit that is not the role file's at once: two k3s share ports and folders",
	CodeNeitherRuns:      "start the unit of the role file, and look at its journal",
	CodeWrongRuns:        "see which role the cluster knows this host by (`regrade status`), and put the role file right; a reboot would change the role",
	CodeNoUnit:           "`regrade host setup`, or put the unit there by hand (docs/operations.md, step 3)",
	CodeMasked:           "systemctl unmask it: both units stay enabled, the role file decides",
	CodeDisabled:         "systemctl enable it: both units stay enabled, the role file decides",
	CodeStaleUnit:        "systemctl daemon-reload; k3s goes on running",
	CodeNoCondition:      "give the unit its drop-in with ExecCondition (docs/operations.md, step 3) and systemctl daemon-reload",
	CodeLeavingLeft:      "see that no member list has this host, then `regrade host finish-demote`; if one has it, delete the file",
	CodeJoiningLeft:      "delete it; it counts in no other boot",
	CodeAllowJoin:        "delete it once the server has joined",
	CodeTombstone:        "`regrade host finish-demote`: it moves the datastore aside and starts the agent",
	CodeStray:            "see that no member list has this host, then move server/db aside",
	CodeSQLite:           "move server/db/state.db* away once you know that nothing of it is wanted",
	CodeJoinLeft:         "delete it and the unit's drop-in of the same name, systemctl daemon-reload",
	CodeHalfJoin:         "delete both where no swap is under way, systemctl daemon-reload; the daemon writes them in the next one",
	CodeLevelLeft:        "delete the level's drop-in, /etc/rancher/k3s/server.yaml.d/30-regrade-level.yaml",
	CodeLevelDiffers:     "`regrade level` says what holds the step; a restart of k3s takes it",
	CodeBadJournal:       "move /var/lib/regrade/step.json away once `regrade status` shows no swap with this host",
	CodeHalts:            "look the code up in docs/interface.md and put right what it names",
	CodeEtcdDown:         "look at k3s's journal, and whether the other voters are up: without a quorum nobody answers",
	CodeEtcdVersion:      "upgrade k3s to a release with etcd 3.5.26, 3.6.4 or later",
	CodeAlarm:            "make room (compact, defragment), then `etcdctl alarm disarm` at a voter: until then nothing is written",
	CodeSlowDisk:         "look what else writes to this disk; a voter wants an SSD of its own (`regrade explain` shows the window)",
	CodeDiskUnknown:      "`regrade probe check etcd` or `regrade probe check fsync` says more",
	CodeTwins:            "see which of the two is wanted and stop the other; of two k3s, the one that is not the unit's main process",
	CodeNotListening:     "look at the journal of k3s, or of regrade-host on a standby, which holds 2380 for the voters to try",
	CodeForeignListener:  "stop it, or have it listen elsewhere: k3s needs the port, and a forwarder hides that etcd is gone",
	CodePortsUnknown:     "run it as root, where k3s's network is",
	CodeNoOwnJoinURL:     "add the host to /etc/regrade/join.yaml and restart regrade-host",
	CodeNoJoinURL:        "add the entry to /etc/regrade/join.yaml and restart regrade-host",
	CodeJoinURLElsewhere: "correct the entry and restart regrade-host, unless both addresses are the host's",
	CodeJoinURLOfNobody:  "take the entry out, or see why the Node is gone",
	CodeNoDaemon:         "systemctl start regrade-host, or docker compose up -d regrade-host; its log says why it ended",
	CodeReplaced:         "systemctl restart regrade-host; k3s goes on running",
	CodeK3sReplaced:      "restart k3s here when an upgrade is what you want, one server after the other",
	CodeNoPassword:       "start k3s here once in its present role: it writes /etc/rancher/node/password",
	CodePassword:         "put the old password back, or have the cluster take the new one (docs/operations.md, Docker hosts)",

	// Of a preflight, and of the way back.
	"NotStaged":           "stage the server: server.yaml with a server token (docs/operations.md, step 5)",
	"BadServerConfig":     "correct the file that it names",
	"NoToken":             "put the server token into server.yaml: cat /var/lib/rancher/k3s/server/token on a voter",
	"WrongToken":          "put the server token into server.yaml, not the agents': /var/lib/rancher/k3s/server/token on a voter",
	"NoJoinHost":          "add the voters to /etc/regrade/join.yaml",
	"JoinHostUnreachable": "open the way to the voters: 6443, 2379 and 2380 both ways",
	"JoinHostFalters":     "wait: etcd has no leader for a moment; if it stays, `regrade status` says what is wrong with the voters",
	"OtherCA":             "this is a token, or files, of another cluster: put those of this one there",
	"StaleCredentials":    "move server/tls and server/cred aside: k3s gets them anew when it joins",
	"VersionMismatch":     "give every server the same k3s; no swap begins while an upgrade is under way",
	"FlagsDiffer":         "make the flag the same on every server, or name it in allowed-flags of host.yaml",
	"MemberExists":        "have the old member removed: `regrade status` names it, docs/operations.md, Recover",
	"DuplicateHostName":   "give the host a name of its own and restart k3s",
	"OtherNodeName":       "let node-name in server.yaml be the Node's name",
	"WithNodeID":          "take with-node-id out of server.yaml",
	"DatastoreMount":      "let server/db be a folder, or a mount as a whole (docs/operations.md, step 5)",
	"LowDisk":             "make room where k3s's data is; etcd may need 2 GiB, and a joining member a whole copy",
	"VoterUnreachable":    "open the way to that voter: 2379, 2380 and 6443",
	"IdentityOutOfReach":  "docs/operations.md, Docker hosts, Identity volumes",
	"AgentNotStaged":      "give the host an agent.yaml with a server and a token that the servers take from agents (docs/operations.md, step 2)",

	// Of the platform.
	"ComposeVersion": "use Docker Compose 1.29 or v2, but not 2.37.1 to 2.38",
	"EngineVersion":  "use Docker 24.0.7 or later",
}

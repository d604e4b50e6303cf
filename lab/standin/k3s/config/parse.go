package config

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Values are the flags of one command after files, command line and environment were merged.
type Values struct {
	Command Command
	values  map[string][]string
	// set names the flags given by a file, an argument or the environment.
	set map[string]bool
	// Warnings are what k3s logs about the config file.
	Warnings []string
	// NodeArgs is the content of annotation k3s.io/node-args: command, then flag and value as separate items, config
	// file values first and unknown keys included; secrets show as asterisks.
	NodeArgs []string
	// Rest are the arguments after the flags.
	Rest []string
}

// ErrHelp is returned for -h and --help.
var ErrHelp = flag.ErrHelp

// Text is the value of a flag that takes one value.
func (v Values) Text(name string) string {
	if vs := v.values[name]; len(vs) > 0 {
		return vs[len(vs)-1]
	}
	return ""
}

// List is the value of a flag that may be repeated. Values are not split at commas; see Split.
func (v Values) List(name string) []string { return v.values[name] }

// Split is List with each value split at commas, as k3s does for addresses, ranges and disabled components.
func (v Values) Split(name string) []string {
	var out []string
	for _, s := range v.values[name] {
		for _, part := range strings.Split(s, ",") {
			if part = strings.TrimSpace(part); part != "" {
				out = append(out, part)
			}
		}
	}
	return out
}

// Bool is the value of an on/off flag.
func (v Values) Bool(name string) bool {
	b, err := strconv.ParseBool(v.Text(name))
	return err == nil && b
}

// IsSet says whether a file, an argument or the environment gave the flag.
func (v Values) IsSet(name string) bool { return v.set[name] }

// value collects one flag's arguments. It implements flag.Value.
type value struct {
	def  flagDef
	to   *Values
	name string
}

func (x value) String() string   { return "" }
func (x value) IsBoolFlag() bool { return x.def.kind == toggle }
func (x value) Set(s string) error {
	switch x.def.kind {
	case toggle:
		if _, err := strconv.ParseBool(s); err != nil {
			return errors.New("parse error")
		}
		x.to.values[x.name] = []string{s}
	case list:
		if !x.to.set[x.name] {
			x.to.values[x.name] = nil
		}
		x.to.values[x.name] = append(x.to.values[x.name], s)
	case text:
		x.to.values[x.name] = []string{s}
	}
	x.to.set[x.name] = true
	return nil
}

// Parse reads the arguments after the sub-command. For etcd-snapshot they start after its own sub-command (save, ls).
//
// The server and etcd-snapshot drop unknown keys of config files with a warning; the agent does not and fails with
// "flag provided but not defined: -<key>" (k3s facts §1.3).
func Parse(cmd Command, args []string, getenv func(string) string) (Values, error) {
	defs := flagsOf(cmd)
	known := map[string]flagDef{}
	for _, d := range defs {
		for _, n := range d.names {
			known[n] = d
		}
	}
	out := Values{Command: cmd, values: map[string][]string{}, set: map[string]bool{}}
	for _, d := range defs {
		if d.def != "" {
			out.values[d.names[0]] = []string{d.def}
		}
	}

	file := configFile(args, getenv)
	settings, err := readFiles(file)
	if err != nil {
		return Values{}, err
	}
	fromFiles := arguments(settings)
	if cmd != Agent {
		var kept []setting
		for _, s := range settings {
			if _, ok := known[s.key]; ok {
				kept = append(kept, s)
				continue
			}
			out.Warnings = append(out.Warnings, fmt.Sprintf("Unknown flag --%s found in config.yaml, skipping", s.key))
		}
		settings = kept
	}
	out.NodeArgs = nodeArgs(cmd, append(append([]string{}, fromFiles...), args...))

	for _, d := range defs {
		if d.env == "" || d.names[0] == "config" {
			continue
		}
		if v := getenv(d.env); v != "" {
			vs := []string{v}
			if d.kind == list {
				vs = strings.Split(v, ",")
			}
			out.values[d.names[0]] = vs
		}
	}

	fs := flag.NewFlagSet(string(cmd), flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	for _, d := range defs {
		for _, n := range d.names {
			fs.Var(value{def: d, to: &out, name: d.names[0]}, n, "")
		}
	}
	if err := fs.Parse(append(arguments(settings), args...)); err != nil {
		return Values{}, err
	}
	for _, d := range defs {
		if d.env != "" && getenv(d.env) != "" {
			out.set[d.names[0]] = true
		}
	}
	out.Rest = fs.Args()
	return out, nil
}

// configFile finds the main config file: the environment wins over --config, then the default (k3s facts §1.2).
func configFile(args []string, getenv func(string) string) string {
	if v := getenv("K3S_CONFIG_FILE"); v != "" {
		return v
	}
	for i, a := range args {
		for _, name := range []string{"--config", "-config", "-c", "--c"} {
			if a == name && i+1 < len(args) {
				return args[i+1]
			}
			if v, ok := strings.CutPrefix(a, name+"="); ok {
				return v
			}
		}
	}
	return "/etc/rancher/k3s/config.yaml"
}

// nodeArgs splits flag=value into two items and hides secrets.
func nodeArgs(cmd Command, args []string) []string {
	out := []string{string(cmd)}
	hide := false
	for _, a := range args {
		name, v, has := strings.Cut(a, "=")
		if !strings.HasPrefix(a, "-") || !has {
			if hide {
				a, hide = "********", false
			} else if secretFlags[a] {
				hide = true
			}
			out = append(out, a)
			continue
		}
		if secretFlags[name] {
			v = "********"
		}
		out = append(out, name, v)
		hide = false
	}
	return out
}

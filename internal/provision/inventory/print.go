package inventory

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
	sigs "sigs.k8s.io/yaml"
)

// Print writes the file with every default that it has taken. The flags that it does not
// set stand below its settings as comments, given in usual with the values that they have
// then. Read again it is the same fleet.
func Print(w io.Writer, f Fleet, usual ...Setting) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	hosts := &yaml.Node{Kind: yaml.SequenceNode}
	for _, h := range f.Hosts {
		n, err := h.node()
		if err != nil {
			return fmt.Errorf("print host %s: %w", h.Name, err)
		}
		hosts.Content = append(hosts.Content, n)
	}
	put(root, "hosts", hosts)
	put(root, KeyMaxServers, plain(fmt.Sprint(f.MaxServers)))
	set := &yaml.Node{Kind: yaml.MappingNode}
	for _, s := range f.Settings {
		put(set, s.Name, plain(s.Value))
	}
	put(root, "settings", set)

	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(root); err != nil {
		return fmt.Errorf("print the fleet: %w", err)
	}
	for _, s := range usual {
		if _, is := f.Setting(s.Name); is || s.Name == KeyMaxServers {
			continue
		}
		fmt.Fprintf(&b, "  # %s: %s\n", s.Name, strings.TrimSpace(oneLine(s.Value)))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// node is a host with every key that has a value.
func (h Host) node() (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.MappingNode}
	text := func(key, v string) {
		if v != "" {
			put(n, key, plain(v))
		}
	}
	text("name", h.Name)
	text("address", h.Address)
	text("ssh", h.SSH)
	text("platform", h.Platform)
	text("role", string(h.Role))
	text("eligible", fmt.Sprint(h.Eligible))
	text("pinned", fmt.Sprint(h.Pinned))
	text("node-ip", h.NodeIP)
	text("join-url", h.JoinURL)
	text("project", h.Project)
	if len(h.Labels) > 0 {
		labels := &yaml.Node{}
		if err := labels.Encode(h.Labels); err != nil {
			return nil, err
		}
		put(n, "labels", labels)
	}
	if h.Docker != nil {
		own, err := h.Docker.node()
		if err != nil {
			return nil, err
		}
		put(n, "docker", own)
	}
	if len(h.Settings) > 0 {
		own := &yaml.Node{}
		if err := own.Encode(h.Settings); err != nil {
			return nil, err
		}
		put(n, "settings", own)
	}
	return n, nil
}

// node is a project with what is said of it.
func (p Project) node() (*yaml.Node, error) {
	raw, err := sigs.Marshal(p)
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return nil, err
	}
	return doc.Content[0], nil
}

func put(n *yaml.Node, key string, v *yaml.Node) {
	n.Content = append(n.Content, plain(key), v)
}

// plain is a value as a person writes it: a number or a truth bare, a text in quotes
// where it needs them.
func plain(v string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: v}
	switch n.ShortTag() {
	case tagWhole, tagFloat, tagTruth:
		return n
	}
	n.SetString(v)
	return n
}

// oneLine is a value as it stands in a comment.
func oneLine(v string) string {
	raw, err := yaml.Marshal(plain(v))
	if line := strings.TrimRight(string(raw), "\n"); err == nil && !strings.Contains(line, "\n") {
		return line
	}
	return shown(v)
}

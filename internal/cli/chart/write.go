package chart

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// write gives the template of a mapping's or a list's children, indented.
func (n *node) write(b *strings.Builder, indent int) error {
	children := slices.Clone(n.children)
	// A mapping that is an item of a list begins with what is always there.
	slices.SortStableFunc(children, func(a, c *node) int {
		if n.list {
			return 0
		}
		return min(len(a.guards), 1) - min(len(c.guards), 1)
	})
	if len(children) > 0 && !slices.ContainsFunc(children, func(c *node) bool { return len(c.guards) == 0 }) {
		return fmt.Errorf("%s: nothing in it is always there", n.key)
	}
	for _, c := range children {
		open(b, c.guards)
		if err := c.writeOne(b, indent, n.list); err != nil {
			return fmt.Errorf("%s: %w", n.key, err)
		}
		shut(b, c.guards)
	}
	return nil
}

func (n *node) writeOne(b *strings.Builder, indent int, item bool) error {
	pad := strings.Repeat(" ", indent)
	switch {
	case item && n.scalar != "":
		fmt.Fprintf(b, "%s- %s\n", pad, n.scalar)
		return nil
	case item && n.list:
		return errors.New("a list in a list")
	case item:
		var inner strings.Builder
		if err := n.write(&inner, indent+2); err != nil {
			return err
		}
		b.WriteString(pad + "- " + strings.TrimPrefix(inner.String(), pad+"  "))
		return nil
	case n.scalar != "":
		fmt.Fprintf(b, "%s%s: %s\n", pad, key(n.key), n.scalar)
		return nil
	}
	fmt.Fprintf(b, "%s%s:\n", pad, key(n.key))
	return n.write(b, indent+2)
}

// key of a mapping: labels' have slashes and dots, which plain YAML takes.
func key(k string) string {
	if strings.ContainsAny(k, ": #{}[]\"'") || k == "" {
		return fmt.Sprintf("%q", k)
	}
	return k
}

func open(b *strings.Builder, guards []string) {
	switch len(guards) {
	case 0:
	case 1:
		fmt.Fprintf(b, "{{- if %s }}\n", guards[0])
	default:
		fmt.Fprintf(b, "{{- if and (%s) }}\n", strings.Join(guards, ") ("))
	}
}

func shut(b *strings.Builder, guards []string) {
	if len(guards) > 0 {
		b.WriteString("{{- end }}\n")
	}
}

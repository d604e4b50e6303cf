package chart

import (
	"fmt"
	"maps"
	"slices"
)

// node is a value of a manifest with what it depends on.
type node struct {
	// guards are the conditions under which it is there at all.
	guards []string
	// key is its name in a mapping, scalar its YAML where it is no mapping or list.
	key      string
	scalar   string
	list     bool
	children []*node
}

// tree makes nodes of a manifest; scalar says how each scalar is written, by the
// object that it stands in.
func tree(v any, in map[string]any, scalar func(in map[string]any, key string, v any) (string, error)) (*node, error) {
	return grow("", v, in, scalar)
}

func grow(key string, v any, in map[string]any, scalar func(map[string]any, string, any) (string, error)) (*node, error) {
	n := &node{key: key}
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			child, err := grow(k, v[k], v, scalar)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", k, err)
			}
			n.children = append(n.children, child)
		}
		if len(v) == 0 {
			n.scalar = "{}"
		}
	case []any:
		n.list = true
		for i, item := range v {
			child, err := grow("", item, in, scalar)
			if err != nil {
				return nil, fmt.Errorf("%d: %w", i, err)
			}
			n.children = append(n.children, child)
		}
		if len(v) == 0 {
			n.scalar = "[]"
		}
	default:
		text, err := scalar(in, key, v)
		if err != nil {
			return nil, err
		}
		n.scalar = text
	}
	return n, nil
}

// same compares without guards.
func (n *node) same(m *node) bool {
	return n.key == m.key && n.scalar == m.scalar && n.list == m.list && slices.EqualFunc(n.children, m.children, (*node).same)
}

// name is that of an item of a list which has one.
func (n *node) name() string {
	for _, c := range n.children {
		if c.key == "name" {
			return c.scalar
		}
	}
	return ""
}

// guard marks what is in n and not in off, which is n without one setting. Anything
// else that differs is an error: a setting adds, and changes nothing.
func (n *node) guard(off *node, condition string) error {
	if n.scalar != off.scalar || n.list != off.list {
		return fmt.Errorf("%s: %q is %q without %q", n.key, n.scalar, off.scalar, condition)
	}
	if n.list && len(n.children) == len(off.children) {
		for i, c := range n.children {
			if err := c.guard(off.children[i], condition); err != nil {
				return fmt.Errorf("%s[%d]: %w", n.key, i, err)
			}
		}
		return nil
	}
	left := off.children
	for _, c := range n.children {
		switch {
		case len(left) > 0 && c.isOf(left[0], n.list):
			if err := c.guard(left[0], condition); err != nil {
				return fmt.Errorf("%s: %w", n.key, err)
			}
			left = left[1:]
		default:
			c.guards = append(c.guards, condition)
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("%s: %s%s is there only without %q", n.key, left[0].key, left[0].name(), condition)
	}
	return nil
}

// isOf says whether a child is the other's: by its key, in a list by its name or whole.
func (n *node) isOf(other *node, item bool) bool {
	if !item {
		return n.key == other.key
	}
	if name := n.name(); name != "" {
		return name == other.name()
	}
	return n.same(other)
}

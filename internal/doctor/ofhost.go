package doctor

// CheckHost is the check of a host that was asked to look at itself.
const CheckHost = "host"

// OfHost is what a host found on itself, beside the findings of its fleet: what is wrong,
// or that nothing is. Problem says why it could not be asked.
func OfHost(node string, d Document, problem string) []Finding {
	c := &check{name: CheckHost}
	if problem != "" {
		c.add(Fail, node, CodeHostNotAsked, "could not be asked: %s", problem)
		return c.found
	}
	if d.Node != "" && d.Node != node {
		// What it found is another host's.
		c.add(Fail, node, CodeHostNotAsked, "could not be asked: the host that answered is the Node %s", d.Node)
		return c.found
	}
	well := 0
	for _, f := range d.Findings {
		if f.Grade == OK {
			well++
			continue
		}
		f.Node = node
		c.found = append(c.found, f)
	}
	if len(c.found) == 0 {
		c.add(OK, node, "", "%s, nothing is wrong", plural(well, "finding"))
	}
	return c.found
}

// Unreached is the finding about a cluster whose API does not answer.
func Unreached(why string) []Finding {
	c := &check{name: CheckAPI}
	c.fail(CodeNoAPI, "the cluster could not be looked at: %s", why)
	return c.found
}

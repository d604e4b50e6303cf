package preflight

import (
	"context"
	"slices"

	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/status"
)

// Serving looks for the same on a server: whether its configuration would bring it up
// again beside the others. Its own datastore and member are no problems there. It
// changes nothing and ends within seconds.
func (c *Checker) Serving(ctx context.Context, in hostapi.PreflightInput) []status.Problem {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	var l list
	c.beside(ctx, &l, in)
	return slices.DeleteFunc(l.sorted(), func(p status.Problem) bool { return p.Code == CodeMemberExists })
}

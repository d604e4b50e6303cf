package controller

import (
	"log/slog"
	"slices"

	"github.com/exadev/regrade/internal/obs"
)

// said is what was logged last, so that a wait of an hour is one line.
type said struct {
	state, code, sentence, err, publish string
}

// say logs a turn once: every action, and every other turn that differs from
// the one before.
func (c *Controller) say(t Turn) {
	now := said{state: string(t.Decision.State), code: t.Decision.Code, sentence: t.Decision.Sentence}
	if t.Err != nil {
		now.err = t.Err.Error()
	}
	if t.PublishErr != nil {
		now.publish = t.PublishErr.Error()
	}
	if now == c.said && !t.Acted {
		return
	}
	d := t.Decision
	attrs := []any{
		slog.String(obs.State, now.state), slog.String(obs.Code, d.Code), slog.String(obs.Sentence, d.Sentence),
	}
	if d.Swap != nil {
		attrs = append(attrs, slog.String(obs.Swap, string(d.Swap.ID)))
	}
	if d.Acts() {
		attrs = append(attrs, slog.String(obs.Action, string(d.Action.Kind)), slog.String(obs.Node, d.Action.Node))
	}
	for _, w := range d.Waits {
		attrs = append(attrs, slog.String(obs.Wait+"."+w.Code, w.Sentence))
	}
	switch {
	case t.Err != nil && d.Acts():
		c.log.Warn("action not carried out, taken again in the next pass", append(attrs, slog.Any(obs.Err, t.Err))...)
	case t.Err != nil:
		c.log.Warn("pass cut short", append(attrs, slog.Any(obs.Err, t.Err))...)
	case t.Acted:
		c.log.Info("action carried out", attrs...)
	case now.state != c.said.state || now.code != c.said.code || now.sentence != c.said.sentence:
		c.log.Info("waiting", attrs...)
	}
	if t.PublishErr != nil && now.publish != c.said.publish {
		c.log.Warn("status not published", slog.Any(obs.Err, t.PublishErr))
	}
	c.said = now
}

// fewNames of keys are logged at once: anybody's probe can write as many as a
// ConfigMap holds.
const fewNames = 10

// sayUnjudged names the entries of the probes that nobody looks at, each once.
func (c *Controller) sayUnjudged(keys []string) {
	var news []string
	for _, key := range keys {
		if _, told := slices.BinarySearch(c.unjudged, key); !told {
			news = append(news, key)
		}
	}
	if c.unjudged = keys; len(news) > 0 {
		c.log.Warn("entries in the ConfigMap of the probes that are ignored: their hosts neither vote nor are eligible, or are no Nodes",
			slog.Int("entries", len(news)), slog.Any("first", news[:min(len(news), fewNames)]))
	}
}

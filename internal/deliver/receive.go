package deliver

import (
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/exadev/regrade/internal/alert"
	"github.com/exadev/regrade/internal/obs"
)

// Webhook takes a message as JSON.
type Webhook struct {
	Web   *Web
	URL   *url.URL
	Token obs.Secret
}

// Name of the receiver.
func (Webhook) Name() string { return "webhook" }

// Send implements a receiver.
func (h Webhook) Send(ctx context.Context, m alert.Message) error {
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	return h.Web.post(ctx, "webhook", h.URL, h.Token, body, map[string]string{"Content-Type": "application/json", "Idempotency-Key": m.ID})
}

// Ntfy takes a message as an ntfy topic does.
type Ntfy struct {
	Web   *Web
	URL   *url.URL // of the topic
	Token obs.Secret
}

// Name of the receiver.
func (Ntfy) Name() string { return "ntfy" }

// Send implements a receiver.
func (n Ntfy) Send(ctx context.Context, m alert.Message) error {
	priority, tag := "high", "warning"
	switch {
	case m.Event == alert.Ended:
		priority, tag = "default", "white_check_mark"
	case m.Severity == alert.Critical:
		priority, tag = "urgent", "rotating_light"
	}
	return n.Web.post(ctx, "ntfy", n.URL, n.Token, []byte(m.Sentence), map[string]string{
		"Title": mime.QEncoding.Encode("utf-8", m.Title), "Priority": priority, "Tags": tag + "," + string(m.Kind),
	})
}

// Slack takes a message as Slack's incoming webhooks do, and those of what imitates them.
type Slack struct {
	Web *Web
	URL *url.URL
}

// Name of the receiver.
func (Slack) Name() string { return "slack" }

var slackText = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// Send implements a receiver.
func (s Slack) Send(ctx context.Context, m alert.Message) error {
	body, err := json.Marshal(map[string]string{"text": "*" + slackText.Replace(m.Title) + "*\n" + slackText.Replace(m.Sentence)})
	if err != nil {
		return fmt.Errorf("slack: %w", err)
	}
	return s.Web.post(ctx, "slack", s.URL, "", body, map[string]string{"Content-Type": "application/json"})
}

// post delivers a message. Of an answer that says that the request is what is wrong
// nobody can tell whether the message is, or the address: it is marked, and the message
// stays. That a credential or the moment is wrong a person or time puts right.
func (w *Web) post(ctx context.Context, name string, u *url.URL, token obs.Secret, body []byte, header map[string]string) error {
	_, err := w.do(ctx, request{method: http.MethodPost, url: u, token: token, body: body, header: header})
	switch status(err) {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return fmt.Errorf("%s: %w (%w)", name, err, alert.ErrRefused)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

package preflight

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Dated is an API server's clock beside this host's.
type Dated struct {
	URL string
	// Ahead is how far this host's clock is ahead, a second or the time that the answer
	// took more or less: a Date has whole seconds.
	Ahead time.Duration
	Err   error
}

// Dates asks each server for the time, all at once. Nothing is decided by the answers
// and nothing secret is sent, so whoever answers is believed: a host whose clock is off
// by months takes every certificate for invalid.
func Dates(ctx context.Context, urls []string, now func() time.Time) []Dated {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	out := make([]Dated, len(urls))
	var wait sync.WaitGroup
	for i, u := range urls {
		wait.Go(func() { out[i] = dated(ctx, u, now) })
	}
	wait.Wait()
	return out
}

func dated(ctx context.Context, server string, now func() time.Time) Dated {
	d := Dated{URL: server}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/cacerts", nil)
	if err != nil {
		d.Err = errors.New("the URL is none")
		return d
	}
	t := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, //nolint:gosec // above
		DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
	}
	client := &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	before := now()
	resp, err := client.Do(req)
	if err != nil {
		d.Err = plain(err)
		return d
	}
	after := now()
	_ = resp.Body.Close()
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		d.Err = fmt.Errorf("%s answers %s without a Date", server, resp.Status)
		return d
	}
	// The answer was dated somewhere between, and a Date is cut off to the second.
	d.Ahead = before.Add(after.Sub(before) / 2).Sub(date.Add(time.Second / 2)).Round(time.Millisecond)
	return d
}

package sensor

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// MaxPage is the most of a metrics page that is read. One of etcd's is some
// 150 KB, k3s's own a few hundred.
const MaxPage = 8 << 20

// maxLine bounds one line of a page.
const maxLine = 64 << 10

// Page fetches the lines of a metrics page that the etcd sensor reads. Nothing
// else of the page is kept, so that what it has besides can neither cost memory
// nor make the reading fail.
func Page(ctx context.Context, c *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, faultf(CodeUnreachable, "etcd's metrics page: %v", err)
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4")
	resp, err := c.Do(req)
	if err != nil {
		return nil, faultf(netCode(err), "etcd's metrics page: %v", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, faultf(CodeNotServed, "etcd's metrics page: %s says %s", url, resp.Status)
	}
	return wanted(resp.Body)
}

// NewPageClient makes a client for Page: it goes straight to the address, follows
// no redirect and unpacks nothing.
func NewPageClient(bound time.Duration) *http.Client {
	return &http.Client{
		Timeout:       bound,
		Transport:     &http.Transport{DisableCompression: true, MaxIdleConns: 1, MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// wanted keeps the lines of the families that are read.
func wanted(r io.Reader) ([]byte, error) {
	limited := &io.LimitedReader{R: r, N: MaxPage + 1}
	lines := bufio.NewReaderSize(limited, 16<<10)
	var kept bytes.Buffer
	var line []byte
	for {
		part, err := lines.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return nil, faultf(CodeTooLarge, "etcd's metrics page: a line of more than %d bytes", maxLine)
		}
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if limited.N <= 0 {
			return nil, faultf(CodeTooLarge, "etcd's metrics page: more than %d bytes", MaxPage)
		}
		whole := err == nil
		if whole && want(line) {
			kept.Write(line)
		}
		switch {
		case whole:
			line = line[:0]
			continue
		case !errors.Is(err, io.EOF):
			return nil, faultf(truncatedOr(err), "etcd's metrics page: %v", err)
		case len(line) > 0:
			return nil, faultf(CodeTruncated, "etcd's metrics page: it ends within a line")
		}
		return kept.Bytes(), nil
	}
}

func truncatedOr(err error) string {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return CodeTruncated
	}
	return netCode(err)
}

// want says whether a line is a sample or the type of a family that is read.
func want(line []byte) bool {
	text := string(line[:min(len(line), 256)])
	text = strings.TrimPrefix(text, "# TYPE ")
	end := strings.IndexAny(text, "{ \t\n")
	if end <= 0 {
		return false
	}
	name := text[:end]
	if families[name] {
		return true
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, suffix); ok && families[base] {
			return true
		}
	}
	return false
}

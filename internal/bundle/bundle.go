package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/obs"
)

// Bounds. A part that is longer loses its beginning, where the oldest is, or its end
// where it is a whole document.
const (
	MaxPart = 2 << 20
	// MaxWhole is of all parts together, before they are packed.
	MaxWhole = 64 << 20
	// maxParts is how many another bundle may have: a small file can unpack to millions.
	maxParts = 1000
)

// Manifest is the name of the part that says what the others are.
const Manifest = "MANIFEST.txt"

// Bundle is one that is being written. Not safe for concurrent use.
type Bundle struct {
	z      *gzip.Writer
	t      *tar.Writer
	folder string
	now    time.Time
	mask   func([]byte) []byte
	total  int
	in     []entry
	out    []entry
	err    error
}

type entry struct{ name, what string }

// New writes into w; all parts are below folder. Known are secrets of this machine: none
// of them, wherever it stands, gets in, nor what looks like one.
func New(w io.Writer, folder string, now time.Time, known ...obs.Secret) *Bundle {
	z := gzip.NewWriter(w)
	return &Bundle{z: z, t: tar.NewWriter(z), folder: clean(folder), now: now.UTC(), mask: obs.Masker(known...)}
}

// Add puts a part in: its name, what it is, and its text.
func (b *Bundle) Add(name, what string, text []byte) {
	text = b.mask(text)
	if n := len(text); n > MaxPart {
		text = append([]byte(fmt.Sprintf("[the first %d bytes are left out]\n", n-MaxPart)), text[n-MaxPart:]...)
		what += ", its beginning left out"
	}
	b.put(name, what, text)
}

func (b *Bundle) put(name, what string, text []byte) {
	name = b.free(clean(name))
	if b.total += len(text); b.total > MaxWhole {
		b.total -= len(text)
		b.Leave(name, fmt.Sprintf("the bundle would be more than %d MiB", MaxWhole>>20))
		return
	}
	b.in = append(b.in, entry{name, what})
	b.write(name, text)
}

func (b *Bundle) write(name string, text []byte) {
	if b.err != nil {
		return
	}
	h := &tar.Header{Name: path.Join(b.folder, name), Mode: 0o600, Size: int64(len(text)), ModTime: b.now, Typeflag: tar.TypeReg}
	if b.err = b.t.WriteHeader(h); b.err == nil {
		_, b.err = b.t.Write(text)
	}
}

// Leave says that a part is not in, and why.
func (b *Bundle) Leave(name, why string) {
	b.out = append(b.out, entry{clean(name), string(b.mask([]byte(why)))})
}

// Part adds what read gives, or leaves it out with the reason why it could not be read.
func (b *Bundle) Part(name, what string, read func() ([]byte, error)) {
	text, err := read()
	if err != nil {
		b.Leave(name, err.Error())
		return
	}
	b.Add(name, what, text)
}

// Take puts another bundle's parts in below a folder, as they are but masked once more.
func (b *Bundle) Take(folder string, packed []byte) error {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return fmt.Errorf("the bundle of %s: %w", folder, err)
	}
	t := tar.NewReader(z)
	for n := 0; ; n++ {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the bundle of %s: %w", folder, err)
		}
		if n >= maxParts {
			return fmt.Errorf("the bundle of %s has more than %d parts; the rest is left out", folder, maxParts)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(t, MaxPart+1<<10))
		if err != nil {
			return fmt.Errorf("the bundle of %s: %w", folder, err)
		}
		_, name, _ := strings.Cut(h.Name, "/") // its own folder
		b.Add(path.Join(clean(folder), clean(name)), "from the host", text)
	}
}

// Close writes the manifest and ends the file. Its error is the first of all.
func (b *Bundle) Close() error {
	var m strings.Builder
	fmt.Fprintf(&m, "Made %s. Read it before you pass it on: secrets are left out as far as they are known or look like one.\n\nIn it:\n", b.now.Format(time.RFC3339))
	list(&m, b.in)
	m.WriteString("\nLeft out:\n")
	list(&m, append(b.out, entry{"secrets", "tokens, passwords, kubeconfigs, keys and certificates are never read into it; what looks like one is ***"}))
	b.write(Manifest, []byte(m.String())) // why a part was left out is masked already
	for _, end := range []func() error{b.t.Close, b.z.Close} {
		if err := end(); b.err == nil {
			b.err = err
		}
	}
	if b.err != nil {
		return fmt.Errorf("write the bundle: %w", b.err)
	}
	return nil
}

func list(m *strings.Builder, es []entry) {
	for _, e := range es {
		fmt.Fprintf(m, "  %s: %s\n", e.name, strings.ReplaceAll(e.what, "\n", " "))
	}
}

// free is the name, or another where two parts would have it.
func (b *Bundle) free(name string) string {
	for try := name; ; try += "_" {
		if !slices.ContainsFunc(b.in, func(e entry) bool { return e.name == try }) && try != Manifest {
			return try
		}
	}
}

var odd = regexp.MustCompile(`[^A-Za-z0-9._/-]+`)

// clean is a path that stays below its folder, whatever a name holds.
func clean(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+odd.ReplaceAllString(name, "_")), "/")
	if name == "" {
		return "part"
	}
	return name
}

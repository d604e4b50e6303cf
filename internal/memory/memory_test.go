package memory_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exadev/regrade/internal/level"
	"github.com/exadev/regrade/internal/memory"
)

const (
	psi     = "some avg10=1.50 avg60=2.25 avg300=0.10 total=123\nfull avg10=0.50 avg60=0.75 avg300=0.00 total=45\n"
	meminfo = "MemTotal:        4000000 kB\nMemFree:          100000 kB\nMemAvailable:    3000000 kB\n"
)

func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestWhatAHostSaysOfItsMemory(t *testing.T) { // R-185-06
	const cgroup = "/sys/fs/cgroup/unified/memory.pressure"
	whole := level.Reading{
		Pressure:       &level.Pressure{SomeAvg10: 1.5, SomeAvg60: 2.25, FullAvg10: 0.5, FullAvg60: 0.75},
		AvailableBytes: 3000000 << 10, TotalBytes: 4000000 << 10,
	}
	for name, tt := range map[string]struct {
		files               map[string]string
		from                []string
		want                level.Reading
		pressure, available string
	}{
		"a whole reading": {map[string]string{"proc/pressure/memory": psi, "proc/meminfo": meminfo}, nil, whole, "", ""},
		"a cgroup's pressure comes first": {
			map[string]string{"proc/pressure/memory": strings.ReplaceAll(psi, "=", "=9"), "sys/fs/cgroup/unified/memory.pressure": psi, "proc/meminfo": meminfo},
			[]string{"/sys/fs/cgroup/memory.pressure", cgroup, memory.DefaultPressure}, whole, "", "",
		},
		"a kernel without PSI": {
			map[string]string{"proc/meminfo": meminfo}, nil,
			level.Reading{AvailableBytes: whole.AvailableBytes, TotalBytes: whole.TotalBytes}, "without PSI", "",
		},
		"no meminfo": {map[string]string{"proc/pressure/memory": psi}, nil, level.Reading{Pressure: whole.Pressure}, "", "meminfo"},
		"a kernel before MemAvailable": {
			map[string]string{"proc/pressure/memory": psi, "proc/meminfo": "MemTotal: 5 kB\n"}, nil,
			level.Reading{Pressure: whole.Pressure}, "", "no MemAvailable",
		},
		"more available than there is": {
			map[string]string{"proc/pressure/memory": psi, "proc/meminfo": "MemTotal: 5 kB\nMemAvailable: 6 kB\n"}, nil,
			level.Reading{Pressure: whole.Pressure}, "", "of",
		},
		"garbage in both": {
			map[string]string{"proc/pressure/memory": "some avg10=NaN avg60=1\nfull avg10=0 avg60=0\n", "proc/meminfo": "MemTotal: -5 kB\n"}, nil,
			level.Reading{}, "want 0 to 100", "meminfo",
		},
		"nothing at all": {map[string]string{"proc/x": ""}, nil, level.Reading{}, "not there", "meminfo"},
	} {
		t.Run(name, func(t *testing.T) {
			got, pressure, available := memory.Reader{Root: tree(t, tt.files), Pressure: tt.from}.Read()
			says(t, pressure, tt.pressure)
			says(t, available, tt.available)
			if (got.Pressure == nil) != (tt.want.Pressure == nil) || got.Pressure != nil && *got.Pressure != *tt.want.Pressure {
				t.Errorf("pressure %+v, want %+v", got.Pressure, tt.want.Pressure)
			}
			if got.AvailableBytes != tt.want.AvailableBytes || got.TotalBytes != tt.want.TotalBytes {
				t.Errorf("%d of %d bytes available", got.AvailableBytes, got.TotalBytes)
			}
		})
	}
}

func says(t *testing.T, err error, part string) {
	t.Helper()
	if (err == nil) != (part == "") || err != nil && !strings.Contains(err.Error(), part) {
		t.Errorf("error %v, want one with %q", err, part)
	}
}

// The machine's own, where it has them: R-185-40.
func TestThisMachinesOwnMemoryIsRead(t *testing.T) {
	got, pressure, available := memory.Reader{}.Read()
	if available != nil || got.AvailableBytes == 0 || got.TotalBytes < got.AvailableBytes {
		t.Errorf("%+v, %v", got, available)
	}
	if _, err := os.Stat(memory.DefaultPressure); err == nil && pressure != nil {
		t.Error(pressure)
	}
}

func FuzzParsePressure(f *testing.F) {
	for _, s := range []string{psi, "", "some", "some avg10=1 avg60=1\nfull avg10=1e309 avg60=-0\n", psi + psi} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := memory.ParsePressure(s)
		if err != nil {
			return
		}
		for _, v := range []float64{p.SomeAvg10, p.SomeAvg60, p.FullAvg10, p.FullAvg60} {
			if !(v >= 0 && v <= 100) || math.IsNaN(v) {
				t.Errorf("%q gives %v", s, v)
			}
		}
	})
}

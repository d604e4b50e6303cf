package lean

import (
	"fmt"
	"log/slog"
	"testing"
)

func TestOnlyMappingsThatNobodyCanWriteAreTaken(t *testing.T) {
	const maps = `00400000-01200000 r-xp 00000000 08:01 1 /usr/local/bin/regrade
01200000-02900000 r--p 00e00000 08:01 1 /usr/local/bin/regrade
02900000-02a00000 rw-p 02500000 08:01 1 /usr/local/bin/regrade
02a00000-02b00000 r--s 00000000 08:01 1 /usr/local/bin/regrade
02b00000-02c00000 rw-p 00000000 00:00 0 
c000000000-c000400000 rw-p 00000000 00:00 0
7f0000000000-7f0000001000 r--p 00000000 08:01 2 /usr/local/bin/other
7ffc00000000-7ffc00001000 r-xp 00000000 00:00 0 [vdso]
garbage
zz-yy r-xp 00000000 08:01 1 /usr/local/bin/regrade
`
	if got := fmt.Sprintf("%x", clean(maps, "/usr/local/bin/regrade")); got != "[{400000 1200000} {1200000 2900000}]" {
		t.Error(got)
	}
}

func TestTheProgramGoesOnAfterwards(t *testing.T) {
	for range 3 {
		if err := ReturnPages(); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(3*4) != "12" {
			t.Error("it does not")
		}
	}
}

func TestAtRestGivesBackEachTime(t *testing.T) {
	give := AtRest(slog.New(slog.DiscardHandler))
	for range 3 {
		give()
		if fmt.Sprint(3*4) != "12" {
			t.Error("it does not go on")
		}
	}
}

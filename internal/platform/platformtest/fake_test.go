package platformtest_test

import (
	"testing"

	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/platformtest"
)

func TestFakeConforms(t *testing.T) {
	platformtest.Run(t, func(*testing.T) platformtest.Subject {
		f := platformtest.NewFake("boot-1")
		return platformtest.Subject{
			Host: f,
			Datastore: func() {
				f.Change(func(x *platform.Facts) { x.Datastore, x.Files.WAL, x.MemberName = true, true, "n1-0123abcd" })
			},
			Settle: func() {
				for range 4 {
					f.Advance()
				}
			},
		}
	})
}

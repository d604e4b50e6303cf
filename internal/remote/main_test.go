package remote

import (
	"testing"

	"go.uber.org/goleak"
)

// No goroutine outlives the tests: every connection is closed, with all that ran for it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

package sensor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"github.com/exadev/regrade/internal/fitness"
)

// Fault is why a reading could not be taken: a stable code of letters, which
// goes into the window, and a sentence for people.
type Fault struct {
	Code     string
	Sentence string
}

func (f *Fault) Error() string { return f.Sentence }

// Codes of faults. They stand in a window as the reason of an absent reading.
const (
	CodeUnreadable  = "Unreadable"
	CodeRefused     = "Refused"
	CodeTimeout     = "Timeout"
	CodeUnreachable = "Unreachable"
	CodeNotServed   = "NotServed"
	CodeTooLarge    = "TooLarge"
	CodeTruncated   = "Truncated"
	CodeBadPage     = "BadPage"
	CodeIncomplete  = "Incomplete"
	CodeBuckets     = "OtherBuckets"
	CodeNoRoute     = "NoDefaultRoute"
	CodeBadRoutes   = "BadRoutes"
	CodeNoPressure  = "NoPressure"
	CodeNoMeminfo   = "NoMeminfo"
	CodeNoDirectory = "NoDirectory"
	CodeDiskFull    = "DiskFull"
	CodeDiskError   = "DiskError"
	CodeDiskHangs   = "DiskHangs"
	CodeTooFew      = "TooFewWrites"
)

func faultf(code, format string, args ...any) *Fault {
	return &Fault{Code: code, Sentence: fmt.Sprintf(format, args...)}
}

// AbsenceOf is what a window keeps of a reading that failed. An error of
// another kind than a fault is unreadable.
func AbsenceOf(r fitness.Reading, err error) fitness.Absence {
	if f, ok := errors.AsType[*Fault](err); ok {
		return fitness.Absence{Reading: r, Code: f.Code}
	}
	return fitness.Absence{Reading: r, Code: CodeUnreadable}
}

// netCode sorts an error of a connection.
func netCode(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return CodeRefused
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, syscall.ETIMEDOUT):
		return CodeTimeout
	}
	return CodeUnreachable
}

// fileFault is a file that could not be read. The path is the one under the root.
func fileFault(what string, err error) *Fault {
	if errors.Is(err, fs.ErrNotExist) {
		return faultf(CodeUnreadable, "%s is not there", what)
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return faultf(CodeUnreadable, "read %s: %v", what, err)
}

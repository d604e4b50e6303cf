package remote

import "errors"

// Code is what kind of trouble a host is in, for a caller that goes by it.
type Code string

// The codes. docs/interface.md says what a person does about each.
const (
	HostDown           Code = "HostDown"
	HostLost           Code = "HostLost"
	HostKeyUnknown     Code = "HostKeyUnknown"
	HostKeyChanged     Code = "HostKeyChanged"
	HostKeyRevoked     Code = "HostKeyRevoked"
	AuthRefused        Code = "AuthRefused"
	KeyNeedsPassphrase Code = "KeyNeedsPassphrase"
	NoSudo             Code = "NoSudo"
	NoShell            Code = "NoShell"
	NotRoot            Code = "NotRoot"
	BadTarget          Code = "BadTarget"
	ConfigUnsupported  Code = "ConfigUnsupported"
	OutputTooLong      Code = "OutputTooLong"
	OutputLost         Code = "OutputLost"
	NoFolder           Code = "NoFolder"
	DiskFull           Code = "DiskFull"
	ReadOnly           Code = "ReadOnly"
	NotArrived         Code = "NotArrived"
	WriteFailed        Code = "WriteFailed"
)

// Problem is why a host was not reached, or did not do what it was told.
type Problem struct {
	Code Code
	Host string // as the caller named it
	// Sentence is for a person; it names the host.
	Sentence string
	Err      error // what it came from, nil for nothing
}

func (p *Problem) Error() string { return p.Sentence }

// Unwrap gives what the problem came from.
func (p *Problem) Unwrap() error { return p.Err }

// CodeOf is the code of the problem in err, empty where there is none.
func CodeOf(err error) Code {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p.Code
	}
	return ""
}

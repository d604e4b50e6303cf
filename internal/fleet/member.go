package fleet

import (
	"fmt"
	"strconv"
	"strings"
)

// MemberID is an etcd member or cluster id. Ids exceed 2^53, which JSON numbers
// read as floats corrupt, so every document carries them as hex strings.
type MemberID uint64

// ParseMemberID reads a hex id of at most 16 digits.
func ParseMemberID(s string) (MemberID, error) {
	v, err := strconv.ParseUint(s, 16, 64)
	if err != nil || len(s) > 16 {
		return 0, fmt.Errorf("member id %q: want up to 16 hex digits", s)
	}
	return MemberID(v), nil
}

func (m MemberID) String() string { return strconv.FormatUint(uint64(m), 16) }

// MarshalText writes the id as hex without a prefix, as etcd prints it.
func (m MemberID) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads what MarshalText writes; empty is zero.
func (m *MemberID) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*m = 0
		return nil
	}
	v, err := ParseMemberID(string(b))
	if err != nil {
		return err
	}
	*m = v
	return nil
}

// MemberNodeName is the node name in a k3s member name, which is the node name
// and eight hex digits behind a dash (k3s-facts §3.4). ok is false for a name
// of another form: a foreign member.
func MemberNodeName(member string) (node string, ok bool) {
	i := strings.LastIndexByte(member, '-')
	if i <= 0 || len(member)-i-1 != 8 {
		return "", false
	}
	for _, c := range member[i+1:] {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", false
		}
	}
	return member[:i], true
}

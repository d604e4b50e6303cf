package remote

import (
	"errors"
	"strings"
)

// quote makes one command line of a program and its arguments that a POSIX shell takes
// apart into just these again.
func quote(argv []string) (string, error) {
	var b strings.Builder
	for i, arg := range argv {
		if strings.ContainsRune(arg, 0) {
			return "", errors.New("an argument holds a NUL, which no program can be given")
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteByte('\'')
		b.WriteString(strings.ReplaceAll(arg, `'`, `'\''`))
		b.WriteByte('\'')
	}
	return b.String(), nil
}

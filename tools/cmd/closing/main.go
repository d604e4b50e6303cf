// Command closing reads `go test -json` on its input, passes the tests' output
// on as it comes, and ends with one line: "N passed, N failed". A scenario is
// a top-level test; its subtests are not counted. The status is 1 when
// one failed, when a package did not build, or when no scenario ran at all.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
)

func main() {
	ok, err := run(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "closing:", err)
	}
	if !ok || err != nil {
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) (bool, error) {
	var c count
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			if _, werr := io.WriteString(out, c.take(line)); werr != nil {
				return false, werr
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return false, err
		}
	}
	_, err := io.WriteString(out, c.closing())
	return c.good(), err
}

package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// maxInMemory bounds content that cannot seek.
const maxInMemory = 64 << 20

// checkPut refuses what no host could make sense of.
func checkPut(p string, mode fs.FileMode) error {
	switch {
	case !path.IsAbs(p) || path.Clean(p) != p || p == "/" || strings.ContainsRune(p, 0):
		return fmt.Errorf("%q is no absolute name of a file", p)
	case mode&^fs.ModePerm != 0:
		return fmt.Errorf("mode %v is more than permissions", mode)
	}
	return nil
}

func (s *sshRunner) Put(ctx context.Context, path string, content io.Reader, mode fs.FileMode) error {
	err := s.put(ctx, path, content, mode)
	if err == nil || named(err) {
		return err
	}
	return s.wrap("write "+path, err)
}

func (s *sshRunner) put(ctx context.Context, path string, content io.Reader, mode fs.FileMode) error {
	if err := checkPut(path, mode); err != nil {
		return err
	}
	content, size, sum, err := measured(content)
	if err != nil {
		return fmt.Errorf("read the content: %w", err)
	}
	head := fmt.Sprintf("%d %s\n", size, sum)
	r, err := s.run(ctx, Command{
		Argv: []string{"sh", "-c", put, "sh", path, strconv.FormatUint(uint64(mode), 8)},
		In:   io.MultiReader(strings.NewReader(head), content),
	})
	if err != nil || r.Code == 0 && r.Signal == "" {
		return err
	}
	code, said := WriteFailed, short(string(r.Err))
	switch r.Code {
	case putNoFolder:
		code, said = NoFolder, "its folder is not there"
	case putIsFolder:
		said = "it is a folder"
	case putNotArrived:
		code, said = NotArrived, "what arrived is not what was sent"
	case putFailed:
		code = codeOfText(said)
	case putEnded:
		said = "it was ended"
	}
	return s.problem(code, path, said)
}

// named says whether an error names the file already.
func named(err error) bool {
	switch CodeOf(err) {
	case NoFolder, DiskFull, ReadOnly, NotArrived, WriteFailed:
		return true
	}
	return false
}

func (s *sshRunner) problem(code Code, path, said string) error {
	return &Problem{Code: code, Host: s.link.name, Sentence: fmt.Sprintf("%s: %s is not written: %s", s.link.name, path, said)}
}

// codeOfText finds the cause in what a program in the C locale says.
func codeOfText(said string) Code {
	for text, code := range map[string]Code{
		"No space left on device": DiskFull, "Disk quota exceeded": DiskFull, "Read-only file system": ReadOnly,
	} {
		if strings.Contains(said, text) {
			return code
		}
	}
	return WriteFailed
}

// measured gives the content from where it stands, with its size and SHA-256. Content that
// can seek is read twice; should it change between, the sum does not fit and it is not taken.
func measured(content io.Reader) (io.Reader, int64, string, error) {
	hash := sha256.New()
	sum := func() string { return hex.EncodeToString(hash.Sum(nil)) }
	if file, ok := content.(io.ReadSeeker); ok {
		if from, err := file.Seek(0, io.SeekCurrent); err == nil {
			size, err := io.Copy(hash, file)
			if err == nil {
				_, err = file.Seek(from, io.SeekStart)
			}
			return io.LimitReader(file, size), size, sum(), err
		}
	}
	all, err := io.ReadAll(io.LimitReader(content, maxInMemory+1))
	if err == nil && len(all) > maxInMemory {
		err = errors.New("it is too long to be held in memory: give a file")
	}
	hash.Write(all)
	return bytes.NewReader(all), int64(len(all)), sum(), err
}

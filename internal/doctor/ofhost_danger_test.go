package doctor_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/exadev/regrade/internal/doctor"
)

// Two addresses that are swapped in fleet.yaml would give each host the other's findings.
func TestWhatAnotherHostFoundIsNotTakenForThisOnes(t *testing.T) {
	d := doctor.New("v1", "n3", []doctor.Finding{{Check: "disk", Grade: doctor.Warn, Sentence: "full"}})
	got := doctor.OfHost("n2", d, "")
	if len(got) != 1 || got[0].Code != doctor.CodeHostNotAsked || !strings.Contains(got[0].Sentence, "is the Node n3") {
		t.Errorf("got %+v", got)
	}
	if got := doctor.OfHost("n3", d, ""); len(got) != 1 || got[0].Sentence != "full" {
		t.Errorf("its own: %+v", got)
	}
}

func TestWhatAHostFindsCommandsNoTerminal(t *testing.T) {
	d := doctor.New("v1", "", []doctor.Finding{{Check: "disk", Grade: doctor.Warn, Sentence: "\x1b]0;x\a\u009b2J\xff\r", Cure: "\x1b[2J"}})
	if got := d.Words(); strings.ContainsAny(got, "\x1b\a\u009b\r") || !utf8.ValidString(got) || !strings.Contains(got, "?]0;x") {
		t.Errorf("got %q", got)
	}
}

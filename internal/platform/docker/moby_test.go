package docker

import (
	"testing"
)

func TestACommandInAContainerGivesWhatItPrinted(t *testing.T) {
	e, h := member(t)
	e.text, e.code = "one\ntwo\n", 3
	for range 50 {
		p, err := h.engine.Run(t.Context(), e.box("k3s").id, "k3s", "--version")
		if err != nil || p.Text != "one\ntwo\n" || p.Status != 3 {
			t.Fatalf("%+v %v", p, err)
		}
	}
}

package token

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestAFullTokenGivesHashUserAndSecret(t *testing.T) {
	ca := []byte("ca")
	got, err := Parse(Format(ca, ServerUser, "s3cret")+"\n", NodeUser)
	if err != nil {
		t.Fatal(err)
	}
	if got.User != ServerUser || got.Secret() != "s3cret" || got.CAHash != HashCA(ca) {
		t.Errorf("got %+v", got)
	}
	if err := got.Check(ca); err != nil {
		t.Error(err)
	}
	if got.Check([]byte("other")) == nil {
		t.Error("a foreign CA was accepted")
	}
}

func TestABareSecretHasNoHashAndTakesEveryCA(t *testing.T) {
	got, err := Parse("secret", NodeUser)
	if err != nil {
		t.Fatal(err)
	}
	if got.CAHash != "" || got.User != NodeUser || got.Check([]byte("any")) != nil {
		t.Errorf("got %+v", got)
	}
}

func TestBadTokensAreRefused(t *testing.T) {
	if _, err := Parse(" \n", NodeUser); !errors.Is(err, ErrEmpty) {
		t.Errorf("empty: %v", err)
	}
	for _, s := range []string{"K10abc::server:x", "K10" + strings.Repeat("z", 64) + "::server:x", "K10" + strings.Repeat("a", 64) + "::server:"} {
		if _, err := Parse(s, NodeUser); err == nil {
			t.Errorf("%s was accepted", s)
		}
	}
}

func TestATokenPrintsWithoutItsSecret(t *testing.T) {
	tok, err := Parse(Format([]byte("ca"), ServerUser, "hush"), NodeUser)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{fmt.Sprint(tok), fmt.Sprintf("%v", tok), fmt.Sprintf("%#v", tok)} {
		if strings.Contains(s, "hush") {
			t.Errorf("%s shows the secret", s)
		}
	}
}

package docs_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/heartbeat"
	"github.com/exadev/regrade/internal/manifests"
)

// everything is what can be installed, all of it switched on.
func everything() manifests.Settings {
	return manifests.Settings{
		Namespace: fleet.DefaultNamespace, ActuatorConfigMap: fleet.ConfigMapActuators, Image: "regrade:v0",
		Controller: true, Probe: true, FsyncDir: fleet.DirFsync, Levels: true,
		Recovery: true, RecoveryPrunes: true, RecoveryEvidence: true, Heartbeat: true, Alert: true,
		Runners: heartbeat.Wanted{Controller: true, Pods: true, Namespace: "RUNNERS", ScaleSets: []string{"NAMESPACE/RELEASE"}},
	}
}

func words(v any) string {
	var out []string
	for _, w := range v.([]any) {
		if w == "" {
			w = "core"
		}
		out = append(out, fmt.Sprint(w))
	}
	return strings.Join(out, ", ")
}

// rows are the rights of all accounts as the security page lists them, and the accounts that have them.
func rows(t *testing.T) (out, accounts []string) {
	t.Helper()
	objects, err := manifests.Objects(everything())
	if err != nil {
		t.Fatal(err)
	}
	bound := map[string]string{} // a role to its account
	for _, o := range objects {
		switch o.Kind() {
		case "ServiceAccount":
			accounts = append(accounts, o.Name())
		case "RoleBinding", "ClusterRoleBinding":
			role := o["roleRef"].(manifests.Object)["name"].(string)
			bound[o.Namespace()+"/"+role] = o["subjects"].([]manifests.Object)[0]["name"].(string)
		}
	}
	for _, o := range objects {
		if o.Kind() != "Role" && o.Kind() != "ClusterRole" {
			continue
		}
		where := "everywhere"
		if o.Namespace() != "" {
			where = "`" + o.Namespace() + "`"
		}
		for _, r := range o["rules"].([]manifests.Object) {
			what := words(r["resources"])
			if group := words(r["apiGroups"]); group != "core" {
				what += " (" + group + ")"
			}
			names := "any"
			if n, ok := r["resourceNames"]; ok {
				names = "`" + words(n) + "`"
			}
			out = append(out, fmt.Sprintf("| `%s` | %s | %s | %s | %s |", bound[o.Namespace()+"/"+o.Name()], where, what, words(r["verbs"]), names))
		}
	}
	slices.Sort(accounts)
	return out, accounts
}

// The page lists each right that a manifest gives, and no other; it says of each account what a thief of it could do.
func TestTheSecurityPageListsEachRight(t *testing.T) {
	page, err := os.ReadFile("security.md")
	if err != nil {
		t.Fatal(err)
	}
	want, accounts := rows(t)
	_, text, found := strings.Cut(string(page), "<!-- held: rights -->\n")
	if !found {
		t.Fatal("security.md has no table of rights")
	}
	var got []string
	for line := range strings.Lines(strings.TrimLeft(text, "\n")) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		got = append(got, strings.TrimSuffix(line, "\n"))
	}
	if len(got) < 2 {
		t.Fatal("the table of rights is empty")
	}
	if diff := cmp.Diff(want, got[2:]); diff != "" {
		t.Errorf("rights, as the manifests give them (-) and as the page says (+):\n%s", diff)
	}
	for _, account := range accounts {
		if !strings.Contains(string(page), "\n| `"+account+"` | ") || !strings.Contains(string(page), "**`"+account+"`**") {
			t.Errorf("security.md says nothing of what a thief of %s could do", account)
		}
	}
}

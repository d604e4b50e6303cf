package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// The parts of a CycloneDX document, version 1.6, that are said of a binary.
type (
	bill struct {
		Schema       string       `json:"$schema"`
		Format       string       `json:"bomFormat"`
		Spec         string       `json:"specVersion"`
		Serial       string       `json:"serialNumber"`
		Version      int          `json:"version"`
		Metadata     metadata     `json:"metadata"`
		Components   []component  `json:"components"`
		Dependencies []dependency `json:"dependencies"`
	}
	metadata struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	}
	component struct {
		Type       string     `json:"type"`
		Ref        string     `json:"bom-ref"`
		Name       string     `json:"name"`
		Version    string     `json:"version"`
		PURL       string     `json:"purl"`
		Licenses   []choice   `json:"licenses"`
		Hashes     []hash     `json:"hashes,omitempty"`
		Properties []property `json:"properties,omitempty"`
	}
	choice struct {
		Expression string `json:"expression"`
	}
	hash struct {
		Algorithm string `json:"alg"`
		Content   string `json:"content"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	dependency struct {
		Ref string   `json:"ref"`
		On  []string `json:"dependsOn"`
	}
)

// bill is the document for one binary: what the Go command says is in it.
func (r *release) bill(a arch, modules []*module) ([]byte, error) {
	sum, err := sumOf(r.binary(a))
	if err != nil {
		return nil, err
	}
	own := component{
		Type: "application", Name: "regrade", Version: r.Version, PURL: purl("github.com/exadev/regrade", r.Version),
		Licenses: []choice{{"Apache-2.0"}}, Hashes: []hash{{"SHA-256", sum}},
		Properties: []property{{"regrade:platform", "linux/" + a.name}, {"regrade:commit", r.Commit}},
	}
	own.Ref = own.PURL
	b := bill{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX", Spec: "1.6", Serial: serial(sum), Version: 1,
		Metadata:   metadata{r.Time.Format(time.RFC3339), own},
		Components: []component{}, Dependencies: []dependency{{Ref: own.Ref, On: []string{}}},
	}
	for _, m := range modules {
		c := component{Type: "library", Name: m.path, Version: m.version, PURL: purl(m.path, m.version), Licenses: []choice{{strings.Join(m.ids, " AND ")}}}
		c.Ref = c.PURL
		b.Components = append(b.Components, c)
		b.Dependencies[0].On = append(b.Dependencies[0].On, c.Ref)
	}
	raw, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("bill of materials: %w", err)
	}
	return append(raw, '\n'), nil
}

func purl(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
}

// serial is a UUID made of the binary's sum (version 8): the same for the same binary.
func serial(sum string) string {
	u := sha256.Sum256([]byte("regrade bill of materials " + sum))
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

package setup

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Encode is the document as Parse reads it. It holds secrets: it goes to a host's
// standard input and nowhere else.
func (d Desired) Encode() ([]byte, error) {
	raw, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("host document: %w", err)
	}
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("host document: %w", err)
	}
	// A secret marshals as ***.
	for key, secret := range map[string]string{"kubeconfig": d.Kubeconfig.Reveal(), "level-kubeconfig": d.LevelKubeconfig.Reveal(), "token": d.Token.Reveal()} {
		if m[key] = secret; secret == "" {
			delete(m, key)
		}
	}
	if d.Docker != nil && d.Docker.AgentToken != "" {
		part, ok := m["docker"].(map[string]any)
		if !ok {
			return nil, errors.New("host document: docker is no map")
		}
		part["agent-token"] = d.Docker.AgentToken.Reveal()
	}
	if raw, err = json.Marshal(m); err != nil {
		return nil, fmt.Errorf("host document: %w", err)
	}
	return raw, nil
}

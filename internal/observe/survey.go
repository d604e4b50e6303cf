package observe

import "time"

// OwnPod is a pod of regrade's own, for people; nothing is decided by it.
type OwnPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Component is controller, probe and so on; Container the name of its container.
	Component   string `json:"component"`
	Container   string `json:"container"`
	Node        string `json:"node,omitempty"`
	Image       string `json:"image"`
	Phase       string `json:"phase"`
	Ready       bool   `json:"ready"`
	Terminating bool   `json:"terminating,omitempty"`
	Restarts    int    `json:"restarts,omitempty"`
	// Waiting is why the container does not run, Ended how it ended last.
	Waiting string    `json:"waiting,omitempty"`
	Ended   string    `json:"ended,omitempty"`
	Created time.Time `json:"created,omitzero"`
}

// Finished says whether the pod has run to its end.
func (p OwnPod) Finished() bool { return p.Phase == "Succeeded" || p.Phase == "Failed" }

// Told is an Event, as somebody told it.
type Told struct {
	Object  string    `json:"object"` // kind, namespace and name
	Type    string    `json:"type"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int       `json:"count,omitempty"`
	From    string    `json:"from,omitempty"`
	Last    time.Time `json:"last,omitzero"`
}

// Condition is one of a Node's.
type Condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Changed time.Time `json:"changed,omitzero"`
}

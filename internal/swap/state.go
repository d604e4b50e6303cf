package swap

// State is where a swap stands, worked out anew from each observation.
type State string

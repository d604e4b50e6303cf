package recover

// Codes of why a Node is changed.
const (
	CodeSilentLong  = "SilentLong"
	CodeReadyAgain  = "ReadyAgain"
	CodeKubeletBack = "KubeletBack"
	CodeGoneLong    = "GoneLong"
)

// Codes of why it is not.
const (
	CodeSilentShort    = "SilentShort"
	CodeOutOfService   = "OutOfService"
	CodeKubeletSpeaks  = "KubeletSpeaks"
	CodeNoReady        = "NoReadyCondition"
	CodeOwnNode        = "OwnNode"
	CodeForeignTaint   = "ForeignTaint"
	CodeSwapNode       = "SwapNode"
	CodeAtALevel       = "AtALevel"
	CodeBeingDeleted   = "BeingDeleted"
	CodeLeaseHeld      = "LeaseHeld"
	CodeLeaseNotRead   = "LeaseNotRead"
	CodeManySilent     = "ManySilent"
	CodeStillReached   = "StillReached"
	CodeStillRefuses   = "StillRefuses"
	CodeTooFewWitness  = "TooFewWitnesses"
	CodeWitnessNotRead = "WitnessesNotRead"
)

// Codes of signs that a host runs though its kubelet is silent.
const (
	CodeProbeBeats    = "ProbeBeats"
	CodeDaemonBeats   = "DaemonBeats"
	CodeKubeletRenews = "KubeletRenews"
	CodeSignsTooShort = "SignsNotWatched"
	CodeSignsNotRead  = "SignsNotRead"
)

// Codes of why a Node that we tainted long ago is not deleted.
const (
	CodeServerLabel    = "ServerLabel"
	CodeEtcdAnnotation = "EtcdAnnotation"
	CodeBadMark        = "BadMark"
	CodeCleanUpOwed    = "CleanUpOwed"
)

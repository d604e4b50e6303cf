package doctor

import (
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// Codes of findings about a host. Those of its preflight stand beside them as they are.
const (
	CodeSettings         = "BadSettings"
	CodeUnseen           = "HostNotSeen"
	CodeNoKubeconfig     = "NoKubeconfig"
	CodeOpenKubeconfig   = "KubeconfigOpen"
	CodeCredential       = "CredentialRefused"
	CodeNoAPI            = "NoAPI"
	CodeNoNode           = "NoNode"
	CodeSkew             = swap.CodeSkew
	CodeClockUnknown     = "ClockUnknown"
	CodeNoRole           = "NoRoleFile"
	CodeBadRole          = status.CodeBadRoleFile
	CodeBadIdentity      = status.CodeBadIdentity
	CodeBadJoining       = "BadJoiningFile"
	CodeBothMay          = "BothMayStart"
	CodeNeitherMay       = "NeitherMayStart"
	CodeBothRun          = "BothRun"
	CodeNeitherRuns      = "NeitherRuns"
	CodeWrongRuns        = "WrongRoleRuns"
	CodeNoUnit           = "NoUnit"
	CodeMasked           = "UnitMasked"
	CodeDisabled         = "UnitDisabled"
	CodeStaleUnit        = "UnitNotRead"
	CodeNoCondition      = "NoStartCondition"
	CodeLeavingLeft      = "LeavingLeft"
	CodeJoiningLeft      = "JoiningLeft"
	CodeAllowJoin        = "AllowJoinSet"
	CodeTombstone        = "TombstoneLeft"
	CodeStray            = "StrayDatastore"
	CodeSQLite           = "SQLiteLeft"
	CodeJoinLeft         = "JoinDropInLeft"
	CodeHalfJoin         = "JoinDropInHalf"
	CodeLevelLeft        = "LevelLeft"
	CodeLevelDiffers     = "LevelNotRun"
	CodeBadJournal       = status.CodeBadJournal
	CodeHalts            = "DaemonHalts"
	CodeEtcdDown         = "EtcdDown"
	CodeEtcdVersion      = swap.CodeEtcdVersion
	CodeNoK3sVersion     = swap.CodeNoK3sVersion
	CodeAlarm            = swap.CodeAlarm
	CodeSlowDisk         = "SlowDisk"
	CodeDiskUnknown      = "DiskNotMeasured"
	CodeTwins            = "TwoOnOnePort"
	CodeNotListening     = "NotListening"
	CodeForeignListener  = "ForeignListener"
	CodePortsUnknown     = "PortsNotRead"
	CodeNoOwnJoinURL     = "NoOwnJoinURL"
	CodeNoJoinURL        = "NoJoinURL"
	CodeJoinURLElsewhere = "JoinURLElsewhere"
	CodeJoinURLOfNobody  = "JoinURLOfNobody"
	CodeNoDaemon         = swap.CodeNoHostDaemon
	CodeReplaced         = "ProgramReplaced"
	CodeK3sReplaced      = "K3sReplaced"
	CodeNoPassword       = "NoNodePassword"
	CodePassword         = "NodePasswordDiffers"
)

// Codes of findings about a fleet. Those of gates stand beside them as they are.
const (
	CodeNotRead         = swap.CodeMissing
	CodeNoController    = "NoController"
	CodeTwoControllers  = "TwoControllers"
	CodePodNotReady     = "PodNotReady"
	CodeImages          = "ImagesDiffer"
	CodePodsUnknown     = "PodsNotListed"
	CodeBadStatus       = "StatusUnreadable"
	CodePaused          = swap.CodePaused
	CodeDryRun          = "DryRun"
	CodeBadRequest      = swap.CodeRequestMalformed
	CodeBadLabel        = "BadLabel"
	CodeNotEligible     = "VoterNotEligible"
	CodeFewEligible     = "NoStandby"
	CodeMarksLeft       = "MarksLeft"
	CodeForeignPrefix   = "ForeignPrefix"
	CodeRemoveAsked     = swap.CodeStaleRemove
	CodeRoleLabels      = "RoleLabelsLeft"
	CodeDesired         = "DesiredRoleDiffers"
	CodeLeaseExpired    = "LeaseExpired"
	CodeServerDemoted   = "ServerDemoted"
	CodeKubeDemoted     = "KubeconfigDemoted"
	CodeNoProbe         = "NoProbe"
	CodeProbeSilent     = "ProbeSilent"
	CodeK3sMixed        = swap.CodeK3sVersions
	CodeRegradeVersions = "RegradeVersionsDiffer"
	CodeLabelWanted     = "LabelNotAsWritten"
	CodeAddressWanted   = "AddressNotAsWritten"
	CodeHostNotAsked    = "HostNotAsked"
)

package hostd

import "github.com/exadev/regrade/internal/status"

// Reason codes of a host's refusals, failures and waits. They stand in reports
// and in docs/interface.md.
const (
	// Refusals: nothing was changed (exit status 2).
	CodeLeaseNotHeld    = "LeaseNotHeld"
	CodeLeaseTaken      = "LeaseTaken"
	CodeStaleSwap       = "StaleSwap"
	CodeRoleMismatch    = "RoleMismatch"
	CodeNotStaged       = "NotStaged"
	CodePreflightFailed = "PreflightFailed"
	CodeNotStandby      = "NotStandby"
	CodeNotServer       = "NotServer"
	CodeNoJoinURL       = "NoJoinURL"
	CodeNoLeadTarget    = "NoLeadTarget"
	CodeNoCondition     = "NoStartCondition"
	CodeNoAgent         = "AgentNotStaged"
	CodeDatastoreMount  = "DatastoreMount"
	CodeNoOwnJoinURL    = "NoOwnJoinURL"
	CodeMemberRemoved   = "MemberRemoved"
	CodeTooFewVoters    = "TooFewVoters"

	// Failures.
	CodeRebooted       = "Rebooted"
	CodeHandOverFailed = "HandOverFailed"
	CodeEtcdNotBack    = "EtcdNotBack"
	CodeSnapshotFailed = "SnapshotFailed"
	CodeWrongLevel     = "WrongLevel"

	// Of a step between levels.
	CodeLevelSwap = "SwapUnderWay"
	CodeLevelLate = "LevelLate"
	CodeNotBack   = "ServerNotBack"
	// CodeNotApplied: the program that applies levels failed.
	CodeNotApplied = "LevelNotApplied"

	// Done, with something to say.
	CodeLevelUnnoted = "LevelUnnoted"
	CodePodsStay     = "PodsStay"

	// Waits and holds.
	CodeNoAPI           = "NoAPI"
	CodeNoNode          = "NoNode"
	CodeBadOrder        = "BadOrder"
	CodeBadRecord       = "BadRecord"
	CodeBadJournal      = status.CodeBadJournal
	CodeBadRoleFile     = status.CodeBadRoleFile
	CodeBadIdentity     = status.CodeBadIdentity
	CodeForeignPrefix   = "ForeignPrefix"
	CodeForeignCluster  = status.CodeForeignCluster
	CodeContradiction   = "Contradiction"
	CodeDraining        = "Draining"
	CodeStopping        = "Stopping"
	CodeProcessLives    = "ProcessLives"
	CodeStarting        = "Starting"
	CodeJoining         = "Joining"
	CodeMemberListed    = "MemberListed"
	CodeEtcdDown        = "EtcdDown"
	CodeHandingOver     = "HandingOver"
	CodeRestarting      = "Restarting"
	CodeNoQuorumWithout = "NoQuorumWithoutMe"
	CodeEffectFailed    = "EffectFailed"
	CodeNoServerUp      = "NoServerUp"
	CodePreflightWait   = "PreflightWait"
	CodeSnapshotting    = "Snapshotting"
	CodeHostLocked      = "HostLocked"
)

package messages

import "github.com/rathcluster/rath/session"

// The classes of workflows: within a pool the work of interactive ones is taken
// before that of batches.
const (
	ClassInteractive = "interactive"
	ClassBatch       = "batch"
)

// The verbs of tools of other processes, on ToolControlSubject.
const (
	// VerbAnnounce puts a tool into the registry; the body describes it.
	VerbAnnounce = "announce"
	// VerbWithdraw takes it away; the body is empty.
	VerbWithdraw = "withdraw"
)

// The same as ParseControlSubject returns them.
const (
	VerbToolAnnounce = "tool." + VerbAnnounce
	VerbToolWithdraw = "tool." + VerbWithdraw
)

// Limits of tools of other processes.
const (
	MaxToolText      = 4 << 10  // bytes of a description
	MaxToolSchema    = 64 << 10 // bytes of a schema
	MaxToolTimeoutMS = 10 * 60 * 1000
	// ToolTimeoutMS is how long a call may take if its tool does not say.
	ToolTimeoutMS = 60 * 1000
)

// ToolControlSubject is where a tool is announced and withdrawn.
func ToolControlSubject(t session.Tenant, user, name, verb string) string {
	return ControlPrefix + string(t) + "." + user + ".tool." + name + "." + verb
}

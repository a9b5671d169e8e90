package messages

import "github.com/rathcluster/rath/session"

// The classes of workflows: within a pool the work of interactive workflows precedes
// that of batches.
const (
	ClassInteractive = "interactive"
	ClassBatch       = "batch"
)

// The verbs of tools of other processes, on ToolControlSubject.
const (
	// VerbAnnounce adds a tool to the registry; the body describes it.
	VerbAnnounce = "announce"
	// VerbWithdraw withdraws a tool; the body is empty.
	VerbWithdraw = "withdraw"
)

// The same verbs as returned by ParseControlSubject.
const (
	VerbToolAnnounce = "tool." + VerbAnnounce
	VerbToolWithdraw = "tool." + VerbWithdraw
)

// Limits of tools of other processes.
const (
	MaxToolText      = 4 << 10  // bytes of a description
	MaxToolSchema    = 64 << 10 // bytes of a schema
	MaxToolTimeoutMS = 10 * 60 * 1000
	// ToolTimeoutMS is the time limit of a call if its tool has none.
	ToolTimeoutMS = 60 * 1000
)

// ToolControlSubject is the subject on which a tool is announced and withdrawn.
func ToolControlSubject(t session.Tenant, user, name, verb string) string {
	return ControlPrefix + string(t) + "." + user + ".tool." + name + "." + verb
}

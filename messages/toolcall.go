package messages

import (
	"fmt"
	"strings"

	"github.com/rathcluster/rath/internal/excerpt"
	"github.com/rathcluster/rath/internal/strict"
	"github.com/rathcluster/rath/session"
)

// The verbs of tools of other processes, on ToolControlSubject.
const (
	// VerbAnnounce puts a tool into the registry; the body is a Tool.
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

// Check says what is wrong with a tool that is announced under a name. What
// its schema means is not looked at.
func (t *Tool) Check(name string) error {
	bad := func(field, problem, remedy string) error {
		return &strict.Error{Message: "tool", Field: field, Problem: problem, Remedy: remedy}
	}
	switch {
	case t.Name != name:
		return bad("name", fmt.Sprintf("%q is not what the subject says, %q", excerpt.Start(t.Name, 80), name), "say the same")
	case t.Effect == "sandboxed":
		return bad("effect", "a tool of another process has no sandbox of ours", "send non_idempotent, idempotent or read_only")
	case strings.TrimSpace(t.Description) == "":
		return bad("description", "it is missing", "tell models what the tool does and when to call it")
	case len(t.Description) > MaxToolText:
		return bad("description", fmt.Sprintf("%d bytes, at most %d are taken", len(t.Description), MaxToolText), "shorten it")
	case len(t.Input) > MaxToolSchema:
		return bad("input", fmt.Sprintf("%d bytes, at most %d are taken", len(t.Input), MaxToolSchema), "make the schema simpler")
	case t.TimeoutMS < 0 || t.TimeoutMS > MaxToolTimeoutMS:
		return bad("timeout_ms", fmt.Sprintf("%d is not from 1 to %d", t.TimeoutMS, MaxToolTimeoutMS), fmt.Sprintf("leave it out for %d", ToolTimeoutMS))
	}
	return nil
}

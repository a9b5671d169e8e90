package messages

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// The verbs of control. Later releases add verbs.
const (
	VerbCancel         = "cancel"
	VerbResolve        = "resolve"
	VerbApprove        = "approve"
	VerbReject         = "reject"
	VerbRespond        = "respond"
	VerbMessage        = "message"
	VerbSessionMessage = "session.message"
	VerbQuarantine     = "quarantine" // the run's session
	VerbRelease        = "release"
	VerbRebudget       = "rebudget"
	// VerbRerun submits the run's task again; the note of the answer is the new
	// run's id.
	VerbRerun = "rerun"
	// VerbResume submits the run's task again, as a run that continues this one at a
	// step; the note of the answer is the new run's id.
	VerbResume = "resume"
	// VerbPublish publishes an event; the subject has EventID in the place of a run.
	VerbPublish = "publish"
	// VerbBlobPut stores a message of the tenant's blobs; the subject has its digest,
	// and the body is a [Blob].
	VerbBlobPut = "blob.put"
	// VerbImport makes a node import a file that was put as a blob. The subject has its
	// digest, and the body is empty.
	VerbImport = "archive.import"
	// VerbRepair makes the relay of a partition derive lost records of LINEAGE again.
	// The subject has the number of the partition, and the body is empty.
	VerbRepair = "lineage.repair"
	// VerbMemoryWrite writes a note. VerbMemoryForget removes the notes at and below a
	// name. The subject has the memory, and the body is uri and, for a note, text.
	VerbMemoryWrite  = "memory.write"
	VerbMemoryForget = "memory.forget"
	// VerbNodeDrain drains a node that runs no other tenant's work; the subject has its
	// incarnation, and the body is empty.
	VerbNodeDrain = "node.drain"
	// VerbQuotaSet sets amounts of the tenant's quota, VerbQuotaOpen adds to those of the
	// current UTC day, and VerbQuotaRemove lifts the quota; the subject has the tenant.
	VerbQuotaSet    = "quota.set"
	VerbQuotaOpen   = "quota.open"
	VerbQuotaRemove = "quota.remove"
)

// EventID is in the subject of VerbPublish in the place of a run.
const EventID = "event"

// Control is the body of a control request. All fields are optional except those of the
// verb: cancel needs none, resolve needs the decision and the reason.
type Control struct {
	// Reason is recorded as evidence.
	Reason string `json:"reason,omitempty"`
	// By is the author's own claim of identity. It is recorded verbatim, beside the
	// user that the subject proves.
	By string `json:"by,omitempty"`
	// Decision is for resolve: run.Happened, run.Again, run.Pin or run.Fail.
	Decision string `json:"decision,omitempty"`
	// Event and Key are the name and the key of the event to publish.
	Event string `json:"event,omitempty"`
	Key   string `json:"key,omitempty"`
	// Value is JSON: the result of a call that happened, the answer of respond, an
	// approve's changes, such as the arguments of a tool call, or the value of an event.
	Value json.RawMessage `json:"value,omitempty"`
	// Step is the path of the question that approve, reject and respond answer. Package
	// client sets it for a run with exactly one open question. For resume it is the step at
	// which to continue; empty is the one that failed.
	Step run.Path `json:"step,omitempty"`
	// Text is the text of message, or of the note for memory.write.
	Text string `json:"text,omitempty"`
	// URI is the name of the note; memory.forget removes all notes at and below it.
	URI string `json:"uri,omitempty"`
	// ID makes any request idempotent.
	ID string `json:"id,omitempty"`
	// Interrupt cuts off the current model call, so that it is repeated with the
	// message.
	Interrupt bool `json:"interrupt,omitempty"`
	// Budget replaces the run's budget in rebudget. In resume it is the new run's; without
	// one it is the budget of the task.
	Budget *Budget `json:"budget,omitempty"`
	// Quota are the amounts to set, for quota.set, or to add on the current day, for
	// quota.open; there, none lifts the quota for the day.
	Quota *QuotaAmounts `json:"quota,omitempty"`
	// Repeat allows rerun to repeat calls that have taken effect and must not happen twice.
	// Without it they refuse the request.
	Repeat bool `json:"repeat,omitempty"`
	// Model is the new run's model in resume; empty is the task's.
	Model string `json:"model,omitempty"`
	// Force makes cancel give up code that does not return within a second, instead of 30.
	Force bool `json:"force,omitempty"`
	// Submitted restricts cancel to submitted tasks: an id that no log holds and no
	// waiting task has is run.ErrUnknownRun. Without it a task that arrives under the
	// id later is cancelled too, because the request may have overtaken it.
	Submitted bool `json:"submitted,omitempty"`
}

// DecodeControl reads the body of a control request; an empty one is allowed.
// [Control.Check] checks the fields that a verb needs.
func DecodeControl(data []byte) (Control, error) {
	var c Control
	if len(data) == 0 {
		return c, nil
	}
	if err := strict.Decode(MaxMessage, "control", data, &c); err != nil {
		return Control{}, err
	}
	for _, f := range []struct {
		name  string
		value string
		limit int
	}{
		{"reason", c.Reason, MaxReason},
		{"by", c.By, MaxBy},
		{"value", string(c.Value), MaxValue},
		{"text", c.Text, MaxNote},
		{"step", string(c.Step), MaxReason},
		{"decision", c.Decision, MaxBy},
		{"id", c.ID, MaxBy},
	} {
		if len(f.value) > f.limit {
			return Control{}, &strict.Error{
				Message: "control", Field: f.name, Problem: fmt.Sprintf("%d bytes, at most %d are taken", len(f.value), f.limit),
				Remedy: "shorten it", Kind: session.ErrTooLarge,
			}
		}
	}
	return c, nil
}

// foreign returns a set field that belongs only to other verbs, "" if there is none.
func (c *Control) foreign(verb string) (field string, verbs []string) {
	for _, f := range []struct {
		field string
		set   bool
		verbs []string
	}{
		{"decision", c.Decision != "", []string{VerbResolve}},
		{"value", c.Value != nil, []string{VerbApprove, VerbRespond, VerbResolve, VerbPublish}},
		{"event", c.Event != "", []string{VerbPublish}},
		{"key", c.Key != "", []string{VerbPublish}},
		{"step", c.Step != "", []string{VerbApprove, VerbReject, VerbRespond, VerbResume}},
		{"text", c.Text != "", []string{VerbMessage, VerbSessionMessage, VerbMemoryWrite}},
		{"uri", c.URI != "", []string{VerbMemoryWrite, VerbMemoryForget}},
		{"interrupt", c.Interrupt, []string{VerbMessage, VerbSessionMessage}},
		{"budget", c.Budget != nil, []string{VerbRebudget, VerbResume}},
		{"model", c.Model != "", []string{VerbResume}},
		{"quota", c.Quota != nil, []string{VerbQuotaSet, VerbQuotaOpen}},
		{"repeat", c.Repeat, []string{VerbRerun}},
		{"force", c.Force, []string{VerbCancel}},
		{"submitted", c.Submitted, []string{VerbCancel}},
	} {
		if f.set && !slices.Contains(f.verbs, verb) {
			return f.field, f.verbs
		}
	}
	return "", nil
}

// Check returns the reason why a request does not fit its verb. run.ErrMalformed marks
// an unknown verb, a missing field, and a field of another verb.
func (c Control) Check(verb string) error {
	bad := func(field, problem, remedy string) error {
		return &strict.Error{Message: verb, Field: field, Problem: problem, Remedy: remedy}
	}
	if field, verbs := c.foreign(verb); field != "" {
		return bad(field, "it is no part of this request", "leave it out, or send it to the verb "+strings.Join(verbs, ", "))
	}
	switch verb {
	case VerbCancel, VerbRerun:
	case VerbResolve:
		if c.Decision != run.Happened && c.Decision != run.Again && c.Decision != run.Fail && c.Decision != run.Pin {
			return bad("decision", fmt.Sprintf("%q is none", excerpt.Start(c.Decision, 40)), fmt.Sprintf(
				"send %q if the call took place, %q to run it again, %q to wait for a node with the recorded revision, %q to end the run", run.Happened, run.Again, run.Pin, run.Fail))
		}
		if strings.TrimSpace(c.Reason) == "" {
			return bad("reason", "it is missing", "give the source of this; it is kept as evidence")
		}
		if c.Value != nil && c.Decision != run.Happened {
			return bad("value", "only a call that happened has a result", "leave it out, or decide "+run.Happened)
		}
	case VerbApprove, VerbReject, VerbRespond:
		if c.Step == "" {
			return bad("step", "it is missing", "send the path of the question, as run.waiting and `rath answer` show it")
		}
		if verb == VerbReject && strings.TrimSpace(c.Reason) == "" {
			return bad("reason", "it is missing", "give a reason, for the agent and the evidence")
		}
		if verb == VerbRespond && c.Value == nil {
			return bad("value", "it is missing", "send the answer as JSON")
		}
	case VerbPublish:
		if err := run.ValidEvent(c.Event, c.Key); err != nil {
			return bad("event", Text(err), "send the name and the key that a run awaits")
		}
		if strings.HasPrefix(c.Event, run.EventOfRath) {
			return bad("event", "events whose name begins with "+run.EventOfRath+" come from Rath alone", "take another name")
		}
	case VerbQuarantine, VerbRelease:
		if strings.TrimSpace(c.Reason) == "" {
			return bad("reason", "it is missing", "give a reason; it is kept as evidence")
		}
	case VerbQuotaSet, VerbQuotaOpen, VerbQuotaRemove:
		return c.Quota.check(verb)
	case VerbRebudget:
		if c.Budget == nil {
			return bad("budget", "it is missing", "send the whole budget of the run; a field of 0 is unlimited")
		}
		return (&Task{ID: "x", Budget: *c.Budget}).Check()
	case VerbResume:
		if c.Step != "" && !c.Step.Resumable() {
			return bad("step", fmt.Sprintf("%q is no step of the workflow itself", excerpt.Start(string(c.Step), 40)), "send one such as 4, an iteration of a loop such as 4.17, or leave it out for the step that failed")
		}
		t := Task{ID: "x", Model: c.Model}
		if c.Budget != nil {
			t.Budget = *c.Budget
		}
		return t.Check()
	case VerbMessage, VerbSessionMessage:
		if strings.TrimSpace(c.Text) == "" {
			return bad("text", "it is empty", "send the user's text")
		}
		if len(c.Text) > MaxValue {
			return &strict.Error{
				Message: verb, Field: "text", Problem: fmt.Sprintf("%d bytes, at most %d are taken", len(c.Text), MaxValue), Remedy: "shorten it", Kind: session.ErrTooLarge,
			}
		}
	default:
		return bad("", "unknown verb", "use "+strings.Join([]string{
			VerbCancel, VerbResolve, VerbApprove, VerbReject, VerbRespond, VerbMessage,
			VerbQuarantine, VerbRelease, VerbRebudget, VerbRerun, VerbResume, VerbPublish,
		}, ", "))
	}
	return nil
}

// Note checks a request to write or forget notes and returns its fields.
func (c Control) Note(verb string) (uri, text string, err error) {
	if field, verbs := c.foreign(verb); field != "" {
		return "", "", &strict.Error{Message: verb, Field: field, Problem: "it is no part of this request", Remedy: "leave it out, or send it to the verb " + strings.Join(verbs, ", ")}
	}
	if c.URI == "" {
		return "", "", &strict.Error{Message: verb, Field: "uri", Problem: "it is missing", Remedy: "send a name like memory://user/preferences/colours"}
	}
	if verb == VerbMemoryWrite && strings.TrimSpace(c.Text) == "" {
		return "", "", &strict.Error{Message: verb, Field: "text", Problem: "it is missing", Remedy: "send the text of the note; " + VerbMemoryForget + " removes a note"}
	}
	return c.URI, c.Text, nil
}

// Refusal reports whether err means that the request itself was wrong, so that sending
// it again is useless.
func Refusal(err error) bool {
	for _, target := range []error{
		run.ErrMalformed, run.ErrKeyReused, run.ErrNotSupported, run.ErrUnknownRun, run.ErrState, session.ErrNotFound,
		session.ErrTenant, session.ErrTooLarge, session.ErrClosed, session.ErrArchived,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

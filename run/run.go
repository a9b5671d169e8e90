// Package run is the durable-execution core: what a run of a workflow is, how
// its journal decides what executes and what is replayed, and who may write.
//
// A run is one execution of a workflow on a session. Its steps are recorded
// as events in the logs of the sessions it works on, next to the content they
// produced. After a crash the workflow's code runs again from the start; each
// step asks the [Journal], recorded ones return what they returned before, and
// execution goes on at the first step that is not there.
//
// The package is pure but for [Direct]: a [StateMachine] takes commits, requests and
// the time as arguments and says which events to append. Whoever drives it (a
// session actor, Direct) owns the log, the clock and the goroutines.
//
// testdata/protocol tells the protocol in transcripts: which commits a claim, a step, a
// signal, a fan-out or a take-over makes, and what each is answered. They are the tests
// of every [Store], too.
package run

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/session"
)

// ID names a run and is its idempotency key, unique per tenant.
type ID string

// State is where a run stands.
type State string

// The states of a run. The last five are final but NeedsReview, which a
// resolution ends.
const (
	Queued      State = "queued"
	Running     State = "running"
	Waiting     State = "waiting"
	NeedsReview State = "needs_review"
	Succeeded   State = "succeeded"
	Failed      State = "failed"
	Cancelled   State = "cancelled"
	TimedOut    State = "timed_out"
)

// Terminal reports whether nothing can follow s.
func (s State) Terminal() bool {
	return s == Succeeded || s == Failed || s == Cancelled || s == TimedOut
}

// Past says in words how a run in a final state ended, such as "has failed" or
// "was cancelled".
func (s State) Past() string {
	switch s {
	case Cancelled:
		return "was cancelled"
	case TimedOut:
		return "has timed out"
	}
	return "has " + string(s)
}

// Path names a step within its run, the same on every execution: "3" is the
// third step, "3.0" the first tool call of its round, "2.fast.1" the first
// step of the branch "fast" that step 2 opened.
type Path string

// Child returns the path below p.
func (p Path) Child(name string) Path {
	if p == "" {
		return Path(name)
	}
	return p + "." + Path(name)
}

// Index returns the n-th path below p.
func (p Path) Index(n int) Path { return p.Child(strconv.Itoa(n)) }

// Within reports whether p is o or below it.
func (p Path) Within(o Path) bool { return p == o || strings.HasPrefix(string(p), string(o)+".") }

// Ends reports whether a step at p only brings its run to an end: the workflow
// has returned.
func (p Path) Ends() bool { return strings.HasPrefix(string(p), "end") }

// Task asks for a run. The zero values of its fields mean "not said".
type Task struct {
	ID       ID
	Workflow string
	Revision string // the author's string; "" takes what the node offers
	Session  session.Key
	Input    json.RawMessage // as the submitter wrote it
	Model    string
	Tools    []string
	// Workspace is a head to start from.
	Workspace blob.Digest
	Budget    Budget
	Deadline  time.Time
	NotBefore time.Time
	ForkOf    *session.Ref
	// Branch is set for a branch of a fan-out.
	Branch *Branch
	// Resume marks an offer of a run that a log already holds.
	Resume bool
	// Unborn says that Session was named for this task a moment ago, so that its log
	// need not be looked for. It may be wrong, and then costs a conflict.
	Unborn bool `json:"-"`
	// Seen, of an offer, is what a relay knew of the run: a claim that finds
	// something else is refused. Nil claims any state.
	Seen *Seen `json:",omitempty"`
}

// Seen is how a run stood when it was offered.
type Seen struct {
	Attempt uint64 `json:"attempt"` // of its last claim, zero for none
}

// wireTask is a task as run.submitted records it: all that a later claim
// needs to run it again. Input is text, because it may hold floats.
type wireTask struct {
	Branch    *Branch     `json:"branch,omitempty"`
	Budget    Budget      `json:"budget,omitzero"`
	Deadline  int64       `json:"deadline,omitempty"`
	ForkOf    *wireRef    `json:"fork_of,omitempty"`
	Input     string      `json:"input,omitempty"`
	Model     string      `json:"model,omitempty"`
	NotBefore int64       `json:"not_before,omitempty"`
	Revision  string      `json:"revision,omitempty"`
	Run       ID          `json:"run"`
	Tools     []string    `json:"tools,omitempty"`
	Workflow  string      `json:"workflow"`
	Workspace blob.Digest `json:"workspace,omitzero"`
}

type wireRef struct {
	Session session.ID      `json:"session"`
	Version session.Version `json:"version"`
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func (t Task) wire() wireTask {
	w := wireTask{
		Branch: t.Branch, Budget: t.Budget, Deadline: millis(t.Deadline), Input: strings.ToValidUTF8(string(t.Input), "\uFFFD"), Model: t.Model,
		NotBefore: millis(t.NotBefore), Revision: t.Revision, Run: t.ID, Tools: t.Tools, Workflow: t.Workflow, Workspace: t.Workspace,
	}
	if t.ForkOf != nil {
		w.ForkOf = &wireRef{t.ForkOf.ID, t.ForkOf.Version}
	}
	return w
}

func (w wireTask) task(k session.Key) Task {
	t := Task{
		ID: w.Run, Branch: w.Branch, Workflow: w.Workflow, Revision: w.Revision, Session: k, Model: w.Model, Tools: w.Tools,
		Workspace: w.Workspace, Budget: w.Budget, Deadline: fromMillis(w.Deadline), NotBefore: fromMillis(w.NotBefore),
	}
	if w.Input != "" {
		t.Input = json.RawMessage(w.Input)
	}
	if w.ForkOf != nil {
		t.ForkOf = &session.Ref{Key: session.Key{Tenant: k.Tenant, ID: w.ForkOf.Session}, Version: w.ForkOf.Version}
	}
	return t
}

// Digest identifies what the task asks for: two tasks with one id and
// different digests are a reused key. Where a branch lies is not part of it: a
// node of a release that does not say it derives the same task.
func (t Task) Digest() string {
	if t.Branch != nil {
		b := *t.Branch
		b.Within, t.Branch = nil, &b
	}
	text, err := session.Marshal(t.wire())
	if err != nil {
		return ""
	}
	sum := sha256.Sum256([]byte(string(t.Session.Tenant) + "\x00" + text))
	return hex.EncodeToString(sum[:16])
}

// Valid checks the ids and limits that hold for every task.
func (t Task) Valid() error {
	if err := session.ValidID("run", string(t.ID)); err != nil {
		return err
	}
	if err := session.ValidID("workflow", t.Workflow); err != nil {
		return err
	}
	if err := t.Session.Valid(); err != nil {
		return err
	}
	if t.Branch != nil {
		if err := t.Branch.valid(t.Session); err != nil {
			return err
		}
		if string(t.ID) != string(t.Session.ID) {
			return fmt.Errorf("run: branch %s is in session %s: %w", t.ID, t.Session, ErrMalformed)
		}
	}
	if len(t.Input) > MaxInput {
		return fmt.Errorf("run: task %s has %d bytes of input: at most %d are taken; store more as a workspace", t.ID, len(t.Input), MaxInput)
	}
	return nil
}

// MaxInput is the most bytes that a task's input may have.
const MaxInput = 256 << 10

package journal

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Task is the request for a run. The zero values of its fields mean "not set".
type Task struct {
	ID       run.ID
	Workflow string
	Revision string // the author's string; "" accepts the node's
	Session  session.Key
	Input    json.RawMessage // verbatim
	Model    string
	Tools    []string
	MCP      []string `json:",omitempty"` // servers
	// Workspace is a head to start from.
	Workspace blob.Digest
	// Sandbox is where the task's commands run.
	Sandbox   Sandbox `json:",omitzero"`
	Budget    run.Budget
	Deadline  time.Time
	NotBefore time.Time
	ForkOf    *session.Ref
	// Resumes is the run that the task continues; nil for none.
	Resumes   *run.Resumption `json:",omitempty"`
	OnFailure string          `json:",omitempty"` // run.Hold or ""
	Tags      run.Tags        `json:",omitempty"`
	Priority  int64           `json:",omitempty"` // see run.MaxPriority
	Class     string          `json:",omitempty"` // run.ClassBatch or ""
	// Limit is the limit by key of its workflow, which the node that takes it evaluates.
	Limit *Limit `json:",omitempty"`
	// After are the runs that must have ended before it begins, see Predecessor.
	After []Predecessor `json:",omitempty"`
	// StartedBy is the run that started it, nil for the task of a client.
	StartedBy *run.Starter `json:",omitempty"`
	// Branch is set for a branch of a fan-out.
	Branch *Branch
	// Resume marks an offer of a run that is already in a log.
	Resume bool
	// Unborn reports that Session got its name for this task a moment ago, so that the
	// lookup of its log can be skipped. If it is wrong, it costs a conflict.
	Unborn bool `json:"-"`
	// By is the user who submitted it, whose credentials the server checked. Via is the
	// user who resubmitted it or, for a branch, the enclosing run: see Submitted.
	// Says is the claim of the sender, see Named.
	By   string `json:",omitempty"`
	Via  string `json:",omitempty"`
	Says string `json:",omitempty"`
	// Suspect belongs to the claim of a suspect; nil is none.
	Suspect *Suspect `json:"-"`
	// Seen, in an offer, is the run's state as a relay knew it: a claim that finds
	// another state is rejected. Nil claims any state.
	Seen *Seen `json:",omitempty"`
}

// Suspect is the part of a suspect's claim that its node adds, see Claim.
type Suspect struct {
	Group int
	Death string
}

// Sandbox is a task's requirements on the sandbox of its session, in the terms of
// session.Placement. An empty field keeps the session's value if the session has a
// placement, and else takes the node's default. Allow holds for the run and its
// branches only.
type Sandbox struct {
	Allow   string `json:"allow,omitempty"` // protected paths that calls may change, separated by commas, each clean, in order
	Backend string `json:"backend,omitempty"`
	Image   string `json:"image,omitempty"`
	Limits  string `json:"limits,omitempty"`
	Network string `json:"network,omitempty"`
	// Services are in the form of sandbox.ParseServices.
	Services string `json:"services,omitempty"`
}

// DefaultBackend is the backend of a task that has files and names no backend.
const DefaultBackend = "local"

// Place returns the placement of the task's run in a session with placement at. It
// returns at itself if the task has no other requirements.
func (t *Task) Place(at session.Placement) session.Placement {
	p, ask := at, t.Sandbox
	ask.Allow = "" // does not affect the placement
	if t.Workspace.IsZero() && ask == (Sandbox{}) {
		return at
	}
	if !t.Workspace.IsZero() {
		p.Head, p.Spec = t.Workspace, ""
	}
	if ask.Backend != "" && ask.Backend != p.Backend { // settings of another backend do not apply here
		p.Image, p.Limits, p.Network = "", "", ""
	}
	p.Backend = cmp.Or(ask.Backend, p.Backend, DefaultBackend)
	p.Image, p.Limits, p.Network = cmp.Or(ask.Image, p.Image), cmp.Or(ask.Limits, p.Limits), cmp.Or(ask.Network, p.Network)
	p.Services = cmp.Or(ask.Services, p.Services)
	if p != at {
		p.Epoch, p.Isolation = 0, ""
	}
	return p
}

// Predecessor is a run that must have ended before another one begins.
type Predecessor struct {
	Any     bool       `json:"any,omitempty"` // its end may be any one, not success alone
	Run     run.ID     `json:"run"`
	Session session.ID `json:"session,omitempty"` // its home; set when the task is taken
}

// Predecessors returns the predecessors of a task without their homes: those that must
// succeed, and those that may end in any way.
func Predecessors(after, anyEnd []run.ID) (all []Predecessor) {
	for _, id := range after {
		all = append(all, Predecessor{Run: id})
	}
	for _, id := range anyEnd {
		all = append(all, Predecessor{Any: true, Run: id})
	}
	return all
}

// NamePredecessors returns the names for Predecessors.
func NamePredecessors(all []Predecessor) (after, anyEnd []run.ID) {
	for _, p := range all {
		if p.Any {
			anyEnd = append(anyEnd, p.Run)
		} else {
			after = append(after, p.Run)
		}
	}
	return after, anyEnd
}

// Seen is a run's state when it was offered.
type Seen struct {
	Attempt uint64 `json:"attempt"` // of its last claim, zero for none
}

// wireTask is the form of a task in run.submitted: everything that a later claim needs
// to run it again. Input is text, because it may contain floats.
type wireTask struct {
	After     []Predecessor   `json:"after,omitempty"`
	Branch    *Branch         `json:"branch,omitempty"`
	Budget    run.Budget      `json:"budget,omitzero"`
	Class     string          `json:"class,omitempty"`
	Deadline  int64           `json:"deadline,omitempty"`
	ForkOf    *wireRef        `json:"fork_of,omitempty"`
	Input     string          `json:"input,omitempty"`
	MCP       []string        `json:"mcp,omitempty"`
	Model     string          `json:"model,omitempty"`
	NotBefore int64           `json:"not_before,omitempty"`
	OnFailure string          `json:"on_failure,omitempty"`
	Priority  int64           `json:"priority,omitempty"`
	Resumes   *run.Resumption `json:"resumes,omitempty"`
	Revision  string          `json:"revision,omitempty"`
	Run       run.ID          `json:"run"`
	Sandbox   Sandbox         `json:"sandbox,omitzero"`
	StartedBy *run.Starter    `json:"started_by,omitempty"`
	Tags      run.Tags        `json:"tags,omitempty"`
	Tools     []string        `json:"tools,omitempty"`
	Workflow  string          `json:"workflow"`
	Workspace blob.Digest     `json:"workspace,omitzero"`
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

// Moment returns a time as logs have it: of whole milliseconds, in UTC.
func Moment(t time.Time) time.Time { return fromMillis(millis(t)) }

func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func (t Task) wire() wireTask {
	w := wireTask{
		After: slices.Clone(t.After), Branch: t.Branch, Budget: t.Budget, Deadline: millis(t.Deadline), Input: strings.ToValidUTF8(string(t.Input), "\uFFFD"), Model: t.Model,
		NotBefore: millis(t.NotBefore), Revision: t.Revision, Run: t.ID, Tools: append([]string(nil), t.Tools...), MCP: append([]string(nil), t.MCP...), Workflow: t.Workflow, Workspace: t.Workspace,
		Sandbox: t.Sandbox, OnFailure: t.OnFailure, Resumes: t.Resumes, StartedBy: t.StartedBy, Tags: maps.Clone(t.Tags), Priority: t.Priority, Class: t.Class,
	}
	if t.ForkOf != nil {
		w.ForkOf = &wireRef{t.ForkOf.ID, t.ForkOf.Version}
	}
	return w
}

func (w wireTask) task(k session.Key) Task {
	t := Task{
		ID: w.Run, After: w.After, Branch: w.Branch, Workflow: w.Workflow, Revision: w.Revision, Session: k, Model: w.Model, Tools: w.Tools, MCP: w.MCP,
		Workspace: w.Workspace, Sandbox: w.Sandbox, Budget: w.Budget, Deadline: fromMillis(w.Deadline), NotBefore: fromMillis(w.NotBefore),
		OnFailure: w.OnFailure, Resumes: w.Resumes, StartedBy: w.StartedBy, Tags: w.Tags, Priority: w.Priority, Class: w.Class,
	}
	if w.Input != "" {
		t.Input = json.RawMessage(w.Input)
	}
	if w.ForkOf != nil {
		t.ForkOf = &session.Ref{Key: session.Key{Tenant: k.Tenant, ID: w.ForkOf.Session}, Version: w.ForkOf.Version}
	}
	return t
}

// Digest identifies the content of the task: two tasks with one id and different
// digests are a reused key. The digest excludes the place of a branch, because a node
// of an older release that does not record it derives the same task.
func (t Task) Digest() string {
	if t.Branch != nil {
		b := *t.Branch
		b.Within, t.Branch = nil, &b
	}
	text, err := canonical.Marshal(t.wire())
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
			return fmt.Errorf("journal: branch %s is in session %s: %w", t.ID, t.Session, run.ErrMalformed)
		}
	}
	if t.Resumes != nil {
		if t.Branch != nil || t.ForkOf != nil {
			return fmt.Errorf("journal: task %s resumes a run, and is a branch or a fork as well: %w", t.ID, run.ErrMalformed)
		}
		if err := t.Resumes.Valid(); err != nil {
			return err
		}
	}
	ids := make([]run.ID, len(t.After))
	for i, p := range t.After {
		if ids[i] = p.Run; p.Session != "" {
			if err := session.ValidID("session", string(p.Session)); err != nil {
				return err
			}
		}
	}
	if err := run.ValidAfter(t.ID, ids); err != nil {
		return err
	}
	if t.StartedBy != nil {
		if err := t.StartedBy.Valid(); err != nil {
			return err
		}
	}
	if err := errors.Join(run.ValidOnFailure(t.OnFailure), t.Tags.Valid(), run.ValidPriority(t.Priority), run.ValidClass(t.Class)); err != nil {
		return err
	}
	if len(t.Input) > run.MaxInput {
		return fmt.Errorf("journal: task %s has %d bytes of input: at most %d are taken; store more as a workspace", t.ID, len(t.Input), run.MaxInput)
	}
	return nil
}

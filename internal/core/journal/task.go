package journal

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Task asks for a run. The zero values of its fields mean "not said".
type Task struct {
	ID       run.ID
	Workflow string
	Revision string // the author's string; "" takes what the node offers
	Session  session.Key
	Input    json.RawMessage // as the submitter wrote it
	Model    string
	Tools    []string
	MCP      []string `json:",omitempty"` // servers
	// Workspace is a head to start from.
	Workspace blob.Digest
	// Sandbox says where its commands are to run.
	Sandbox   Sandbox `json:",omitzero"`
	Budget    run.Budget
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
	// By is the user who submitted it, whose credentials the server checked, and Via the
	// user who had it submitted again or, of a branch, the run around it: see Submitted.
	By  string `json:",omitempty"`
	Via string `json:",omitempty"`
	// Group and Death are of a claim, see Claim.
	Group int    `json:"-"`
	Death string `json:"-"`
	// Seen, of an offer, is what a relay knew of the run: a claim that finds
	// something else is refused. Nil claims any state.
	Seen *Seen `json:",omitempty"`
}

// Sandbox is what a task asks of the sandbox of its session, in the words of
// session.Placement. What is empty stays as it is: of a session that works somewhere, as
// there; of any other, as the node has it. Allow holds for the run and its branches alone.
type Sandbox struct {
	Allow   string `json:"allow,omitempty"` // protected paths that calls may change, separated by commas, each clean, in order
	Backend string `json:"backend,omitempty"`
	Image   string `json:"image,omitempty"`
	Limits  string `json:"limits,omitempty"`
	Network string `json:"network,omitempty"`
	// Services are as sandbox.ParseServices reads them.
	Services string `json:"services,omitempty"`
}

// DefaultBackend is where the files of a task are worked on that names no backend.
const DefaultBackend = "local"

// Place returns where the run of a task works whose session works at a place. It is that
// place if the task asks for nothing else.
func (t *Task) Place(at session.Placement) session.Placement {
	p, ask := at, t.Sandbox
	ask.Allow = "" // says nothing of the place
	if t.Workspace.IsZero() && ask == (Sandbox{}) {
		return at
	}
	if !t.Workspace.IsZero() {
		p.Head, p.Spec = t.Workspace, ""
	}
	if ask.Backend != "" && ask.Backend != p.Backend { // what held there says nothing of here
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

// Seen is how a run stood when it was offered.
type Seen struct {
	Attempt uint64 `json:"attempt"` // of its last claim, zero for none
}

// wireTask is a task as run.submitted records it: all that a later claim
// needs to run it again. Input is text, because it may hold floats.
type wireTask struct {
	Branch    *Branch     `json:"branch,omitempty"`
	Budget    run.Budget  `json:"budget,omitzero"`
	Deadline  int64       `json:"deadline,omitempty"`
	ForkOf    *wireRef    `json:"fork_of,omitempty"`
	Input     string      `json:"input,omitempty"`
	MCP       []string    `json:"mcp,omitempty"`
	Model     string      `json:"model,omitempty"`
	NotBefore int64       `json:"not_before,omitempty"`
	Revision  string      `json:"revision,omitempty"`
	Run       run.ID      `json:"run"`
	Sandbox   Sandbox     `json:"sandbox,omitzero"`
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
		NotBefore: millis(t.NotBefore), Revision: t.Revision, Run: t.ID, Tools: append([]string(nil), t.Tools...), MCP: append([]string(nil), t.MCP...), Workflow: t.Workflow, Workspace: t.Workspace,
		Sandbox: t.Sandbox,
	}
	if t.ForkOf != nil {
		w.ForkOf = &wireRef{t.ForkOf.ID, t.ForkOf.Version}
	}
	return w
}

func (w wireTask) task(k session.Key) Task {
	t := Task{
		ID: w.Run, Branch: w.Branch, Workflow: w.Workflow, Revision: w.Revision, Session: k, Model: w.Model, Tools: w.Tools, MCP: w.MCP,
		Workspace: w.Workspace, Sandbox: w.Sandbox, Budget: w.Budget, Deadline: fromMillis(w.Deadline), NotBefore: fromMillis(w.NotBefore),
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
	if len(t.Input) > run.MaxInput {
		return fmt.Errorf("journal: task %s has %d bytes of input: at most %d are taken; store more as a workspace", t.ID, len(t.Input), run.MaxInput)
	}
	return nil
}

package messages

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
)

// Task is the body of a submission. The subject names tenant, user and workflow. All
// fields are optional but ID.
type Task struct {
	// ID of the run and key of the submission: chosen by the sender, unique
	// per tenant. The same body again changes nothing, another one under the
	// same id is refused as key_reused.
	ID run.ID `json:"id"`
	// Session is the one to work on: an id or a name that a task gave to one. Empty
	// asks for a new one.
	Session string `json:"session,omitempty"`
	// Input is any JSON value; what it means is the workflow's.
	Input json.RawMessage `json:"input,omitempty"`
	Model string          `json:"model,omitempty"`
	Tools []string        `json:"tools,omitempty"`
	// MCP are the names of MCP servers of the nodes.
	MCP []string `json:"mcp,omitempty"`
	// Workspace is the head of the files to work on: 64 hexadecimal digits.
	Workspace string `json:"workspace,omitempty"`
	// Sandbox says where the commands of the run are to run. What it leaves out stays as
	// the session has it, or else as the node.
	Sandbox   Sandbox   `json:"sandbox,omitzero"`
	Budget    Budget    `json:"budget,omitzero"`
	Deadline  time.Time `json:"deadline,omitzero"`   // RFC 3339
	NotBefore time.Time `json:"not_before,omitzero"` // RFC 3339
	// ForkOf is "session:version", or "session" for its newest version: the
	// new session starts as a branch of it.
	ForkOf   string `json:"fork_of,omitempty"`
	Revision string `json:"revision,omitempty"` // of the workflow; empty takes what is offered
}

// Sandbox is what a task asks of the sandbox of its session. A node that cannot hold
// commands to it refuses the calls that need a sandbox.
type Sandbox struct {
	// Allow are protected paths, such as ".github/workflows", that the calls of this run may
	// change, and those below them: separated by commas, relative to the workspace. A change
	// of any other one is undone when its call ends.
	Allow string `json:"allow,omitempty"`
	// Backend is the kind of sandbox that the node is to use, such as "local" or "docker".
	Backend string `json:"backend,omitempty"`
	// Image is what commands find around the workspace, as the backend names it.
	Image string `json:"image,omitempty"`
	// Limits bound the sandbox: "memory=512m,cpus=1.5,disk=2g,pids=200", each at most once.
	Limits string `json:"limits,omitempty"`
	// Network is what commands reach: "none", "open", the hosts of "list:github.com,*.golang.org",
	// or those of "read_only:proxy.golang.org" by GET and HEAD alone.
	Network string `json:"network,omitempty"`
	// Services run beside the commands for as long as the sandbox is open. They take the
	// place of those that the session has.
	Services []sandbox.Service `json:"services,omitempty"`
}

// maxImage is the most bytes of an image's name.
const maxImage = 512

// place returns what is asked for in the one way of writing it.
func (b Sandbox) place() (journal.Sandbox, error) {
	bad := func(field, problem, remedy string) (journal.Sandbox, error) {
		return journal.Sandbox{}, &strict.Error{Message: "task", Field: "sandbox." + field, Problem: problem, Remedy: remedy}
	}
	if b.Backend != "" {
		if err := session.ValidID("sandbox", b.Backend); err != nil {
			return bad("backend", Text(err), "name one that the nodes have, such as local or docker")
		}
	}
	if len(b.Image) > maxImage || strings.ContainsFunc(b.Image, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return bad("image", fmt.Sprintf("%q is no name of an image", excerpt.Start(b.Image, 80)), "name one as the backend does, such as debian:12 or its digest")
	}
	limits, err := sandbox.ParseLimits(b.Limits)
	if err != nil {
		return bad("limits", Text(err), "leave them out for those of the node")
	}
	network, err := sandbox.ParseNetwork(b.Network)
	if err != nil {
		return bad("network", Text(err), "leave it out for none")
	}
	allow, err := journal.ParsePaths(b.Allow)
	if err != nil {
		return bad("allow", Text(err), "name paths of the workspace, such as .github/workflows, separated by commas")
	}
	services, err := sandbox.ServicesText(b.Services)
	if err != nil {
		return bad("services", Text(err), "leave them out for those that the session has")
	}
	return journal.Sandbox{Services: services, Allow: allow, Backend: b.Backend, Image: b.Image, Limits: limits.String(), Network: string(network)}, nil
}

// Budget bounds what a run may consume; zero fields are unlimited.
type Budget struct {
	MicroUSD int64 `json:"micro_usd,omitempty"` // millionths of a US dollar
	Steps    int64 `json:"steps,omitempty"`
	TimeMS   int64 `json:"time_ms,omitempty"` // from the first claim
	Tokens   int64 `json:"tokens,omitempty"`
}

// maxTimeMS is the longest time budget; a longer one is a slip of the unit.
const maxTimeMS = 366 * 24 * 60 * 60 * 1000

// DecodeTask reads the body of a submission. With an error it returns as much
// as could be read: the ID is set if it is one, so that the sender can be told.
func DecodeTask(data []byte) (Task, error) {
	var t Task
	err := strict.Decode(MaxMessage, "task", data, &t)
	if err == nil {
		err = t.check()
	}
	if err != nil {
		if session.ValidID("run", string(t.ID)) != nil {
			t.ID = ""
		}
		return Task{ID: t.ID}, err
	}
	return t, nil
}

// check validates what the types leave open. Names of sessions are checked as
// ids, because that is what ids and names have in common.
func (t *Task) check() error {
	bad := func(field, problem, remedy string) error {
		return &strict.Error{Message: "task", Field: field, Problem: problem, Remedy: remedy}
	}
	if t.ID == "" {
		return bad("id", "it is missing", "choose one per task, of 1 to 64 of A-Z a-z 0-9 _ -; sending a task again under its id is harmless")
	}
	if err := session.ValidID("run", string(t.ID)); err != nil {
		return bad("id", Text(err), "choose another")
	}
	if t.Session != "" && session.ValidID("session", t.Session) != nil {
		return bad("session", Text(session.ValidID("session", t.Session)), "send the id or the name of a session, or leave it out for a new one")
	}
	if len(t.Input) > MaxInput {
		return &strict.Error{
			Message: "task", Field: "input", Problem: fmt.Sprintf("%d bytes, at most %d are taken", len(t.Input), MaxInput),
			Remedy: "put what is large into a workspace", Kind: session.ErrTooLarge,
		}
	}
	if len(t.Model) > MaxModel || len(t.Revision) > MaxModel {
		return bad("model and revision", fmt.Sprintf("more than %d bytes", MaxModel), "shorten them")
	}
	if len(t.Tools) > MaxTools {
		return bad("tools", fmt.Sprintf("%d entries, at most %d are taken", len(t.Tools), MaxTools), "name the ones that the work needs")
	}
	for i, name := range t.Tools {
		field := fmt.Sprintf("tools[%d]", i)
		if err := session.ValidID("tool", name); err != nil {
			return bad(field, Text(err), "send the names of tools")
		}
		if slices.Contains(t.Tools[:i], name) {
			return bad(field, fmt.Sprintf("%q is there twice", name), "name each once")
		}
	}
	if len(t.MCP) > MaxServers {
		return bad("mcp", fmt.Sprintf("%d entries, at most %d are taken", len(t.MCP), MaxServers), "name the ones that the work needs")
	}
	for i, name := range t.MCP {
		field := fmt.Sprintf("mcp[%d]", i)
		if err := session.ValidID("server", name); err != nil {
			return bad(field, Text(err), "send the names of MCP servers")
		}
		if slices.Contains(t.MCP[:i], name) {
			return bad(field, fmt.Sprintf("%q is there twice", name), "name each once")
		}
	}
	if t.Workspace != "" {
		if d, err := blob.ParseDigest(t.Workspace); err != nil || d.IsZero() || d.String() != t.Workspace {
			return bad("workspace", fmt.Sprintf("%q is no head", excerpt.Start(t.Workspace, 80)), "upload the directory first and send its digest, 64 lower-case hexadecimal digits")
		}
	}
	if _, err := t.Sandbox.place(); err != nil {
		return err
	}
	for _, b := range []struct {
		name  string
		value int64
	}{{"tokens", t.Budget.Tokens}, {"micro_usd", t.Budget.MicroUSD}, {"steps", t.Budget.Steps}, {"time_ms", t.Budget.TimeMS}} {
		if b.value < 0 {
			return bad("budget."+b.name, fmt.Sprintf("%d is negative", b.value), "leave it out for no limit")
		}
	}
	if t.Budget.TimeMS > maxTimeMS {
		return bad("budget.time_ms", fmt.Sprintf("%d ms is more than a year", t.Budget.TimeMS), "it counts milliseconds; leave it out for no limit")
	}
	for _, m := range []struct {
		name  string
		value time.Time
	}{{"deadline", t.Deadline}, {"not_before", t.NotBefore}} {
		if y := m.value.UTC().Year(); !m.value.IsZero() && (y < 1971 || y > 9999) {
			return bad(m.name, fmt.Sprintf("the year %d", y), `write it as "2026-11-20T15:04:05Z"`)
		}
	}
	if !t.Deadline.IsZero() && t.NotBefore.After(t.Deadline) {
		return bad("not_before", "it is after the deadline", "leave time between them for the run")
	}
	if t.ForkOf != "" {
		if _, err := parseFork("", t.ForkOf); err != nil {
			return bad("fork_of", fmt.Sprintf("%q names no version of a session", excerpt.Start(t.ForkOf, 100)), `write it as "session:version", or as "session" for its newest version`)
		}
	}
	return nil
}

func parseFork(t session.Tenant, text string) (session.Ref, error) {
	r, err := session.ParseRef(t, text)
	if err == nil && r.Version == 0 && strings.Contains(text, ":") {
		err = fmt.Errorf("session: version in %q: the first is 1", text)
	}
	return r, err
}

// Run returns the task as the journal has it. Its session id, and that of ForkOf,
// are still what the sender wrote: the node that takes the task in resolves names
// and, where there is none, generates an id.
func (t *Task) Run(tenant session.Tenant, workflow string) (journal.Task, error) {
	if err := t.check(); err != nil {
		return journal.Task{}, err
	}
	if err := session.ValidID("tenant", string(tenant)); err != nil {
		return journal.Task{}, &strict.Error{Message: "task", Problem: Text(err), Remedy: "publish on rath.task.<tenant>.<user>.<workflow>"}
	}
	if err := session.ValidID("workflow", workflow); err != nil {
		return journal.Task{}, &strict.Error{Message: "task", Problem: Text(err), Remedy: "publish on rath.task.<tenant>.<user>.<workflow>"}
	}
	out := journal.Task{
		ID: t.ID, Workflow: workflow, Revision: t.Revision, Session: session.Key{Tenant: tenant, ID: session.ID(t.Session)},
		Input: t.Input, Model: t.Model, Tools: t.Tools, MCP: t.MCP, Deadline: moment(t.Deadline), NotBefore: moment(t.NotBefore),
		Budget: run.Budget{
			MicroUSD: t.Budget.MicroUSD, Steps: t.Budget.Steps, Tokens: t.Budget.Tokens, Time: time.Duration(t.Budget.TimeMS) * time.Millisecond,
		},
	}
	place, err := t.Sandbox.place()
	if err != nil {
		return journal.Task{}, err
	}
	out.Sandbox = place
	if t.Workspace != "" {
		d, err := blob.ParseDigest(t.Workspace)
		if err != nil {
			return journal.Task{}, err
		}
		out.Workspace = d
	}
	if t.ForkOf != "" {
		r, err := parseFork(tenant, t.ForkOf)
		if err != nil {
			return journal.Task{}, err
		}
		out.ForkOf = &r
	}
	return out, nil
}

// moment is a time as logs hold it.
func moment(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return time.UnixMilli(t.UnixMilli()).UTC()
}

// TaskOf returns the body of a submission of a task. A session that the task
// names by its id stays named.
func TaskOf(t journal.Task) Task {
	out := Task{
		Input: t.Input, ID: t.ID, Session: string(t.Session.ID), Model: t.Model, Tools: t.Tools, MCP: t.MCP, Deadline: t.Deadline, NotBefore: t.NotBefore,
		Revision: t.Revision, Sandbox: sandboxOf(t.Sandbox),
		Budget: Budget{MicroUSD: t.Budget.MicroUSD, Steps: t.Budget.Steps, TimeMS: t.Budget.Time.Milliseconds(), Tokens: t.Budget.Tokens},
	}
	if !t.Workspace.IsZero() {
		out.Workspace = t.Workspace.String()
	}
	if t.ForkOf != nil {
		out.ForkOf = t.ForkOf.String()
	}
	return out
}

func sandboxOf(s journal.Sandbox) Sandbox {
	services, _ := sandbox.ParseServices(s.Services) // what was checked when it came
	return Sandbox{Allow: s.Allow, Backend: s.Backend, Image: s.Image, Limits: s.Limits, Network: s.Network, Services: services}
}

// Encode returns the body that DecodeTask reads; it fails with the error that
// DecodeTask would.
func (t *Task) Encode() ([]byte, error) {
	data, err := Encode(t)
	if err != nil {
		return nil, &strict.Error{Message: "task", Field: "input", Problem: strict.Problem(err), Remedy: "send JSON"}
	}
	if _, err := DecodeTask(data); err != nil {
		return nil, err
	}
	return data, nil
}

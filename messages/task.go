package messages

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
)

// Task is the body of a submission. The subject names tenant, user and workflow. All
// fields are optional but ID.
type Task struct {
	// ID of the run and key of the submission: chosen by the sender, unique per tenant.
	// Submitting the same body again has no effect; another body under the same id is
	// rejected as key_reused.
	ID run.ID `json:"id"`
	// Session is the session to work on: an id, or a name that a task assigned. Empty
	// requests a new session.
	Session string `json:"session,omitempty"`
	// Input is any JSON value; the workflow defines its meaning.
	Input json.RawMessage `json:"input,omitempty"`
	Model string          `json:"model,omitempty"`
	Tools []string        `json:"tools,omitempty"`
	// MCP are the names of MCP servers of the nodes.
	MCP []string `json:"mcp,omitempty"`
	// Workspace is the head of the files to work on: 64 hexadecimal digits.
	Workspace string `json:"workspace,omitempty"`
	// Sandbox is where the run's commands run. An empty field keeps the session's
	// value, or else takes the node's default.
	Sandbox   Sandbox   `json:"sandbox,omitzero"`
	Budget    Budget    `json:"budget,omitzero"`
	Deadline  time.Time `json:"deadline,omitzero"`   // RFC 3339
	NotBefore time.Time `json:"not_before,omitzero"` // RFC 3339
	// ForkOf is "session:version", or "session" for its newest version: the
	// new session starts as a branch of it.
	ForkOf   string `json:"fork_of,omitempty"`
	Revision string `json:"revision,omitempty"` // of the workflow; empty accepts the offered one
	// After are runs of the tenant that must have succeeded before this one begins, and
	// AfterAny runs that must have ended in any way: at most run.MaxAfter together, which
	// were submitted before. A run of After that ends otherwise fails this one, with
	// run.CodeAfter.
	After    []run.ID `json:"after,omitempty"`
	AfterAny []run.ID `json:"after_any,omitempty"`
	// OnFailure is the fate of the run when a step has failed for the last time: run.Hold
	// or "", see there.
	OnFailure string `json:"on_failure,omitempty"`
	// Tags are pairs by which the run is found, see run.ValidTag.
	Tags run.Tags `json:"tags,omitempty"`
	// Priority is from -run.MaxPriority to run.MaxPriority: of the runs of a tenant that
	// wait for a slot or for a limit, the highest one is first. It is no right to slots of
	// others.
	Priority int64 `json:"priority,omitempty"`
	// Class is run.ClassBatch for a run that gets only leftover capacity.
	Class string `json:"class,omitempty"`
	// Resumes makes the task continue a run that has ended, at one of its steps. The
	// control request resume submits such a task.
	Resumes *run.Resumption `json:"resumes,omitempty"`
	// StartedBy is the run that starts this one with flow.Start. Only the fleet sets it:
	// the task of a client with it is rejected.
	StartedBy *run.Starter `json:"started_by,omitempty"`
}

// Sandbox is a task's requirements on the sandbox of its session. A node that cannot
// enforce them rejects the calls that need a sandbox.
type Sandbox struct {
	// Allow are protected paths, such as ".github/workflows", that the calls of this
	// run may change, including the paths below them: separated by commas, relative to
	// the workspace. A change of any other protected path is undone when its call ends.
	Allow string `json:"allow,omitempty"`
	// Backend is the kind of sandbox for the node to use, such as "local" or "docker".
	Backend string `json:"backend,omitempty"`
	// Image is the file system around the workspace, in the backend's notation.
	Image string `json:"image,omitempty"`
	// Limits bound the sandbox: "memory=512m,cpus=1.5,disk=2g,pids=200", each at most once.
	Limits string `json:"limits,omitempty"`
	// Network is the reachable network: "none", "open", the hosts of
	// "list:github.com,*.golang.org", or those of "read_only:proxy.golang.org" by GET
	// and HEAD only.
	Network string `json:"network,omitempty"`
	// Services run beside the commands for as long as the sandbox is open. They replace
	// those of the session.
	Services []sandbox.Service `json:"services,omitempty"`
}

// maxImage is the maximum size of an image's name, in bytes.
const maxImage = 512

// Normal returns the normalized form of the requirements.
func (b Sandbox) Normal() (Sandbox, error) {
	bad := func(field, problem, remedy string) (Sandbox, error) {
		return Sandbox{}, &strict.Error{Message: "task", Field: "sandbox." + field, Problem: problem, Remedy: remedy}
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
	if b.Allow, err = parsePaths(b.Allow); err != nil {
		return bad("allow", Text(err), "name paths of the workspace, such as .github/workflows, separated by commas")
	}
	if _, err = sandbox.ServicesText(b.Services); err != nil {
		return bad("services", Text(err), "omit them for the session's")
	}
	b.Limits, b.Network = limits.String(), string(network)
	return b, nil
}

// Budget bounds the consumption of a run; zero fields are unlimited.
type Budget struct {
	MicroUSD int64 `json:"micro_usd,omitempty"` // millionths of a US dollar
	Steps    int64 `json:"steps,omitempty"`
	TimeMS   int64 `json:"time_ms,omitempty"` // from the first claim
	Tokens   int64 `json:"tokens,omitempty"`
}

// maxTimeMS is the longest time budget; a longer one is probably in a wrong unit.
const maxTimeMS = 366 * 24 * 60 * 60 * 1000

// DecodeTask reads the body of a submission. With an error it returns the fields that
// could be read. A valid ID is set, so that the sender can be notified.
func DecodeTask(data []byte) (Task, error) {
	var t Task
	err := strict.Decode(MaxMessage, "task", data, &t)
	if err == nil {
		err = t.Check()
	}
	if err != nil {
		if session.ValidID("run", string(t.ID)) != nil {
			t.ID = ""
		}
		return Task{ID: t.ID}, err
	}
	return t, nil
}

// Check validates the constraints that the types do not express. The name of a session
// is checked as an id, because ids and names have the same syntax.
func (t *Task) Check() error {
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
			Remedy: "put large data into a workspace", Kind: session.ErrTooLarge,
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
	if _, err := t.Sandbox.Normal(); err != nil {
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
	return t.checkRest()
}

// checkRest validates After, OnFailure, Priority, Class, Tags, ForkOf and Resumes, and that the id is not reserved.
func (t *Task) checkRest() error {
	if err := run.ValidAfter(t.ID, slices.Concat(t.After, t.AfterAny)); err != nil {
		return &strict.Error{Message: "task", Field: "after", Problem: Text(err), Remedy: "send the ids of runs that were submitted before"}
	}
	if err := run.ValidOnFailure(t.OnFailure); err != nil {
		return &strict.Error{Message: "task", Field: "on_failure", Problem: Text(err), Remedy: "leave it out, or send " + run.Hold}
	}
	if err := run.ValidPriority(t.Priority); err != nil {
		return &strict.Error{Message: "task", Field: "priority", Problem: Text(err), Remedy: "leave it out for 0"}
	}
	if err := run.ValidClass(t.Class); err != nil {
		return &strict.Error{Message: "task", Field: "class", Problem: Text(err), Remedy: "leave it out, or send " + run.ClassBatch}
	}
	if err := t.Tags.Valid(); err != nil {
		return &strict.Error{Message: "task", Field: "tags", Problem: Text(err), Remedy: "send pairs of short texts"}
	}
	if of, cleanup := run.CleanedBy(t.ID); cleanup {
		return &strict.Error{Message: "task", Field: "id", Problem: fmt.Sprintf("%q is reserved for the compensations of run %s", t.ID, of), Remedy: "choose another id"}
	}
	if t.StartedBy != nil {
		if err := t.StartedBy.Valid(); err != nil {
			return &strict.Error{Message: "task", Field: "started_by", Problem: Text(err), Remedy: "leave it out: a run that starts another one sets it"}
		}
	}
	if t.ForkOf != "" {
		if _, err := parseFork("", t.ForkOf); err != nil {
			return &strict.Error{
				Message: "task", Field: "fork_of", Problem: fmt.Sprintf("%q names no version of a session", excerpt.Start(t.ForkOf, 100)),
				Remedy: `write it as "session:version", or as "session" for its newest version`,
			}
		}
	}
	if t.Resumes == nil {
		return nil
	}
	bad := func(problem, remedy string) error {
		return &strict.Error{Message: "task", Field: "resumes", Problem: problem, Remedy: remedy}
	}
	if err := t.Resumes.Valid(); err != nil {
		return bad(Text(err), "send the control request resume, which submits such a task")
	}
	if t.ForkOf != "" || t.Workspace != "" || t.Session != "" {
		return bad("the task names a session, a fork or a workspace as well", "leave those out: the session is a fork of the run's, with its files")
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

// Digest distinguishes two submissions under one id: it is the same for the same task
// of a tenant and workflow, however its body is written. FORMAT.md specifies the hashed
// bytes.
func (t *Task) Digest(tenant session.Tenant, workflow string) (string, error) {
	if err := t.Check(); err != nil {
		return "", err
	}
	place, err := t.Sandbox.Normal()
	if err != nil {
		return "", err
	}
	d := digested{
		After: t.After, AfterAny: t.AfterAny,
		Budget:   run.Budget{MicroUSD: t.Budget.MicroUSD, Steps: t.Budget.Steps, Tokens: t.Budget.Tokens, Time: time.Duration(t.Budget.TimeMS) * time.Millisecond},
		Deadline: millis(t.Deadline), Input: strings.ToValidUTF8(string(t.Input), "\uFFFD"), MCP: t.MCP, Model: t.Model, NotBefore: millis(t.NotBefore), Revision: t.Revision, Run: t.ID,
		Sandbox:   digestedSandbox{Allow: place.Allow, Backend: place.Backend, Image: place.Image, Limits: place.Limits, Network: place.Network},
		OnFailure: t.OnFailure, Tags: t.Tags, Tools: t.Tools, Workflow: workflow, Workspace: t.Workspace, Resumes: t.Resumes, StartedBy: t.StartedBy,
	}
	if d.Sandbox.Services, err = sandbox.ServicesText(place.Services); err != nil {
		return "", err
	}
	if t.ForkOf != "" {
		r, err := parseFork(tenant, t.ForkOf)
		if err != nil {
			return "", err
		}
		d.ForkOf = &digestedRef{r.ID, r.Version}
	}
	text, err := canonical.Marshal(d)
	if err != nil {
		return "", err
	}
	return half(half(string(tenant)+"\x00"+text) + "\x00" + t.Session), nil
}

// digested is a task in the form of its Digest, which is that of run.submitted
// but for After.
type digested struct {
	After     []run.ID        `json:"after,omitempty"`
	AfterAny  []run.ID        `json:"after_any,omitempty"`
	Budget    run.Budget      `json:"budget,omitzero"`
	Deadline  int64           `json:"deadline,omitempty"`
	ForkOf    *digestedRef    `json:"fork_of,omitempty"`
	Input     string          `json:"input,omitempty"`
	MCP       []string        `json:"mcp,omitempty"`
	Model     string          `json:"model,omitempty"`
	NotBefore int64           `json:"not_before,omitempty"`
	OnFailure string          `json:"on_failure,omitempty"`
	Resumes   *run.Resumption `json:"resumes,omitempty"`
	Revision  string          `json:"revision,omitempty"`
	Run       run.ID          `json:"run"`
	Sandbox   digestedSandbox `json:"sandbox,omitzero"`
	StartedBy *run.Starter    `json:"started_by,omitempty"`
	Tags      run.Tags        `json:"tags,omitempty"`
	Tools     []string        `json:"tools,omitempty"`
	Workflow  string          `json:"workflow"`
	Workspace string          `json:"workspace,omitempty"`
}

type digestedRef struct {
	Session session.ID      `json:"session"`
	Version session.Version `json:"version"`
}

type digestedSandbox struct {
	Allow    string `json:"allow,omitempty"`
	Backend  string `json:"backend,omitempty"`
	Image    string `json:"image,omitempty"`
	Limits   string `json:"limits,omitempty"`
	Network  string `json:"network,omitempty"`
	Services string `json:"services,omitempty"`
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// half is half of the SHA-256 of a text.
func half(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// NotOfClient is the error of the task of a client that names a run as its starter.
func (t *Task) NotOfClient() error {
	if t.StartedBy == nil {
		return nil
	}
	return &strict.Error{Message: "task", Field: "started_by", Problem: "the task comes from a client", Remedy: "leave it out: a run that starts another one sets it"}
}

// Encode returns a body for DecodeTask; it fails with the error of DecodeTask.
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

package dossier_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/lease"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// hostile is text that would break out of markup, terminals and comments, or hide its
// content.
const hostile = "</script><img src=x onerror=alert(1)> --> ``` ````\n\n~~~\n| a | b | [x](javascript:alert(1)) \x1b[31mred\x1b[0m \x1b]8;;http://evil.test\x07link " +
	"\u202egnp.exe\u202c {{.}} &lt; <!-- <![CDATA[ \u2028 \x00 ]]> @everyone #1 \u200bzero"

// world is a log, blobs and a memory that nodes use one after the other. Its contents are
// the same in every execution of a test.
type world struct {
	t     testing.TB
	log   commitlog.Memory
	blobs blob.Store
	notes memory.Store
}

var home = session.Key{Tenant: "acme", ID: "issue-7"}

const fixRun run.ID = "fix-7"

func newWorld(t testing.TB) *world {
	return &world{t: t, blobs: blob.NewMemory(), notes: notebook.New(nil)}
}

func (w *world) must(err error) {
	w.t.Helper()
	must.Do(w.t, err)
}

// cutLog is the log of a node that loses the connection and can then no longer write.
type cutLog struct {
	commitlog.Log
	cut atomic.Bool
}

func (l *cutLog) Append(ctx context.Context, at commitlog.Position, c commitlog.Commit) (commitlog.Position, error) {
	if l.cut.Load() {
		return commitlog.Position{}, session.ErrUnavailable
	}
	return l.Log.Append(ctx, at, c)
}

// node is a runtime over the world's log.
func (w *world) node(name string, log commitlog.Log, m llm.Models) *engine.Runtime {
	values := journal.NewValues(log)
	return &engine.Runtime{
		// The bubble's clock begins in 2000.
		Store: journal.NewStore(log, &journal.StoreOptions{Incarnation: name + "-1", Values: values, Now: func() time.Time {
			return time.Now().AddDate(26, 10, 19).Add(9 * time.Hour)
		}}),
		Values: values, Models: m, Node: name, Mint: commitlog.IDGenerator{Generation: 1, Partitions: 4},
		Blobs:  func(session.Tenant) blob.Store { return w.blobs },
		Memory: func(context.Context, session.Tenant, string) (memory.Store, error) { return w.notes, nil },
		Workspaces: lease.Workspaces{
			Dir: w.t.TempDir(), Backends: map[string]sandbox.Backend{"local": fakeBackend{}},
		},
	}
}

// model answers by looking at the request.
type model func(r *llm.Request) *llm.Response

func (m model) Complete(_ context.Context, r *llm.Request, _ func(llm.Delta)) (*llm.Response, error) {
	time.Sleep(1200 * time.Millisecond) // of the bubble
	resp := m(r)
	resp.Model = "scripted-1"
	resp.Usage = session.Usage{Input: 400 + 10*int64(len(r.Messages)), Output: 60}
	if resp.Finish = llm.FinishStop; len(resp.Calls) > 0 {
		resp.Finish = llm.FinishTools
	}
	return resp, nil
}

func (m model) Client(context.Context, llm.Provider) (llm.Client, error) { return m, nil }

// fakeBackend is a sandbox over the directory that supports one command.
type fakeBackend struct{}

func (fakeBackend) Name() string { return "local" }

func (fakeBackend) Probe(context.Context) (sandbox.Capabilities, error) {
	return sandbox.Capabilities{Isolation: sandbox.IsolationKernel}, nil
}

func (fakeBackend) Resolve(context.Context, sandbox.Spec) (sandbox.Info, error) {
	return sandbox.Info{Isolation: sandbox.IsolationKernel, Network: sandbox.NetworkNone, WholeTree: true}, nil
}

func (fakeBackend) Open(_ context.Context, s sandbox.Spec) (sandbox.Sandbox, error) {
	return &fakeBox{dir: s.Dir}, nil
}

type fakeBox struct{ dir string }

func (b *fakeBox) Info() sandbox.Info   { return sandbox.Info{Isolation: sandbox.IsolationKernel} }
func (b *fakeBox) Close() error         { return nil }
func (b *fakeBox) Files() sandbox.Files { return b }

// Exec tests whether slug.sh handles empty input.
func (b *fakeBox) Exec(context.Context, sandbox.Cmd) (sandbox.Exit, error) {
	time.Sleep(240 * time.Millisecond)
	text, err := os.ReadFile(filepath.Join(b.dir, "slug.sh"))
	if err != nil {
		return sandbox.Exit{}, err
	}
	e := sandbox.Exit{Ended: sandbox.Exited, Elapsed: 240 * time.Millisecond, Stdout: sandbox.Output{Head: []byte("ok 1 - words\nok 2 - empty\n")}}
	if !strings.Contains(string(text), "-n") {
		e.Code, e.Stdout.Head = 1, []byte("ok 1 - words\nnot ok 2 - empty\n")
	}
	e.Stdout.Total = int64(len(e.Stdout.Head))
	return e, nil
}

func (b *fakeBox) Open(_ context.Context, name string) (io.ReadCloser, error) {
	return os.Open(filepath.Join(b.dir, filepath.FromSlash(name)))
}

func (b *fakeBox) Create(_ context.Context, name string) (io.WriteCloser, error) {
	return os.Create(filepath.Join(b.dir, filepath.FromSlash(name)))
}

func (b *fakeBox) Remove(context.Context, string) error { return sandbox.ErrUnsupported }

func (b *fakeBox) Rename(context.Context, string, string) error { return sandbox.ErrUnsupported }

func (b *fakeBox) List(context.Context, string) ([]sandbox.Entry, error) {
	return nil, errors.ErrUnsupported
}

func (b *fakeBox) Stat(context.Context, string) (sandbox.Entry, error) {
	return sandbox.Entry{}, fs.ErrNotExist
}

const badSlug = `#!/bin/sh
# Turns a title into a slug.
title=$1
echo "$title" |
  tr 'A-Z' 'a-z' |
  tr -cs 'a-z0-9' '-'
`

const goodSlug = `#!/bin/sh
# Turns a title into a slug.
title=$1
[ -n "$title" ] || exit 0
printf %s "$title" |
  tr 'A-Z' 'a-z' |
  tr -cs 'a-z0-9' '-'
`

func writes(id, path, text string) session.ToolCall {
	args, err := canonical.Marshal(map[string]string{"path": path, "content": text})
	if err != nil {
		panic(err)
	}
	return session.ToolCall{ID: id, Name: tool.WriteWorkspaceFile, Args: args}
}

// script plays the agents of the fix.
func script(r *llm.Request) *llm.Response {
	last := r.Messages[len(r.Messages)-1]
	turn := 0
	for _, m := range r.Messages {
		if m.Role == llm.Assistant {
			turn++
		}
	}
	switch prompt := r.Messages[0].Text; {
	case strings.HasPrefix(prompt, "Plan"):
		return &llm.Response{Text: "1. Find why an empty title fails.\n2. Fix slug.sh and add a changelog entry."}
	case last.Role == llm.Tool && last.Name == tool.RunShellCommand:
		return &llm.Response{Text: "Done."}
	case last.Role == llm.Tool:
		return &llm.Response{Text: "Testing it.", Calls: []session.ToolCall{{ID: "t1", Name: tool.RunShellCommand, Args: `{"cmd":"sh slug_test.sh"}`}}}
	case strings.HasPrefix(prompt, "Be quick"):
		return &llm.Response{Text: "A quick fix " + hostile, Calls: []session.ToolCall{writes("w1", "slug.sh", badSlug)}}
	default:
		return &llm.Response{Text: "A careful fix.", Calls: []session.ToolCall{
			writes("w1", "slug.sh", goodSlug), writes("w2", "CHANGELOG.md", "# Changes\n\n- Empty titles give an empty slug.\n"),
		}}
	}
}

// fix returns a workflow with everything that a dossier shows.
func fix(announce tool.Tool) flow.Workflow {
	shell, _ := tool.ByName(tool.RunShellCommand)
	write, _ := tool.ByName(tool.WriteWorkspaceFile)
	tools := []tool.Tool{shell, write}
	planner := &flow.Agent{Name: "planner", Prompt: "Plan the work.", Memory: "notes"}
	quick := &flow.Agent{Name: "coder", Prompt: "Be quick.", Tools: tools}
	careful := &flow.Agent{Name: "coder", Prompt: "Be careful.", Tools: tools}
	return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		s = s.With(session.UserText("slug.sh prints a dash for an empty title. "+hostile)).To("local", "testdata/work")
		s, err := planner.Forward(ctx, s)
		if err != nil {
			return s, err
		}
		for _, coder := range []*flow.Agent{quick, careful} {
			try, err := flow.Fork(ctx, s)
			if err != nil {
				return s, err
			}
			if try, err = coder.Forward(ctx, try); err != nil {
				return s, err
			}
			row, _ := try.Last(session.ToolResult)
			if strings.Contains(row.Text(), "not ok") {
				if err := flow.Reject(ctx, try, "breaks empty input: not ok 2 "+hostile); err != nil {
					return s, err
				}
				continue
			}
			if s, err = flow.Adopt(ctx, s, try, "both tests pass"); err != nil {
				return s, err
			}
		}
		if _, err := flow.Remember(ctx, "notes", "lessons", "slug.sh: guard against empty input before the pipe"); err != nil {
			return s, err
		}
		s, _, err = flow.CallTool(ctx, s, announce, map[string]string{"text": "slug.sh is fixed"})
		return s, err
	})
}

type announceIn struct {
	Text string `json:"text"`
}

// play runs the fix to its end. The first node is cut off while it announces, an operator
// decides, and a second node continues.
func (w *world) play() {
	w.t.Helper()
	ctx := context.Background()
	w.must(w.notes.Write(ctx, "memory://user/memories/lessons/0001", "An empty title once broke slug.sh "+hostile, memory.Origin{}))
	log := &cutLog{Log: &w.log}
	announce := tool.Func("announce", "Tells the team.", func(context.Context, announceIn) (string, error) {
		log.cut.Store(true)
		return "sent", nil
	}, nil)
	g := flow.Registration{Name: "fix", Revision: "r1", New: func() flow.Workflow { return fix(announce) }}
	task := journal.Task{ID: fixRun, Workflow: "fix", Revision: "r1", Session: home, Input: []byte(`{"issue":7}`), By: "ben"}
	first := w.node("alpha", log, model(script))
	ex, err := first.Begin(ctx, g, task)
	w.must(err)
	if _, err := ex.Forward(ctx); !errors.Is(err, session.ErrUnavailable) {
		w.t.Fatalf("the first node ends with %v", err)
	}
	time.Sleep(30 * time.Second)
	second := w.node("beta", &w.log, model(script))
	task.Resume = true
	ex, err = second.Begin(ctx, g, task)
	w.must(err)
	if state, err := ex.Forward(ctx); state != run.NeedsReview {
		w.t.Fatalf("the second attempt ends as %s: %v", state, err)
	}
	time.Sleep(5 * time.Minute)
	w.must(second.Store.Apply(ctx, journal.Signal{To: home, Run: fixRun, Resolve: &journal.Resolved{By: "ana", Decision: run.Happened, Reason: "the message is there"}}))
	ex, err = second.Begin(ctx, g, task)
	w.must(err)
	if state, err := ex.Forward(ctx); state != run.Succeeded {
		w.t.Fatalf("the third attempt ends as %s: %v", state, err)
	}
}

// played returns the world after the fix, with its evidence.
func played(t *testing.T) (w *world, e *dossier.Evidence) {
	t.Helper()
	w = newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		w.play()
		var err error
		e, err = dossier.Collect(context.Background(), &w.log, w.blobs, home, fixRun, &dossier.CollectOptions{Stated: []dossier.Fact{
			{Name: dossier.FactRelease, Value: "v0.1.0"}, {Name: dossier.FactProvider, Value: "scripted"},
		}})
		w.must(err)
	})
	return w, e
}

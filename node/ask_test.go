package node

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// counts is a workflow with one step, named after its code.
func counts(step string) flow.Registration {
	return flow.Registration{Name: "counts", Revision: step, New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			n, err := flow.Do(ctx, step, func(context.Context) (int, error) { return s.Len() + 1, nil }, tool.NonIdempotent)
			if err != nil {
				return s, err
			}
			text, err := json.Marshal(n)
			return s.With(session.UserText(string(text))), err
		})
	}}
}

// TestAskOtherNodes: a node without workflows has a run replayed by a node that offers
// its workflow, reruns it and drains that node.
func TestAskOtherNodes(t *testing.T) {
	t.Parallel()
	store := t.TempDir()
	host, err := Start(t.Context(), &Options{Store: store, NATS: NATS{Level: "lazy", Port: -1}, Idle: true, Name: "host", Fleet: Fleet{Gossip: DevGossip()}})
	must.Do(t, err)
	defer func() { must.Report(t, host.Close()) }()
	other := func(g flow.Registration) *Instance {
		n := must.Get(Start(t.Context(), &Options{Dev: store, Store: t.TempDir(), Name: "other", Fleet: Fleet{Pool: "default"}, Workflows: []flow.Registration{g}}))(t)
		return n
	}
	n := other(counts("add"))
	c, err := host.Client(t.Context())
	must.Do(t, err)
	defer c.Close()
	about := listed(t, c, n) // before it has work: an entry is renewed now and then
	r, err := c.Do(t.Context(), "counts", messages.Task{ID: "one", Session: "talk"}, nil)
	if err != nil || r.State != run.Succeeded {
		t.Fatalf("%+v, %v", r, err)
	}
	home := session.Key{Tenant: session.DefaultTenant, ID: r.Session}
	if age := time.Since(time.UnixMilli(about.Started)); age < 0 || age > time.Minute {
		t.Errorf("node %s says that it is up for %s", about.Name, age)
	}
	if about.Slots != 64 || about.Free != 64 {
		t.Errorf("node %s has %d slots, and %d are free", about.Name, about.Slots, about.Free)
	}
	replay, err := host.replays.run(t.Context(), home, "one")
	if err != nil || !replay.Matches || replay.Node != "other" || len(replay.Runs[0].Steps) != 1 {
		t.Fatalf("%+v, %v", replay, err)
	}

	// A rerun starts from the run's input, not from its results.
	if r, err = c.Do(t.Context(), "counts", messages.Task{ID: "two", Session: "talk"}, nil); err != nil || r.State != run.Succeeded {
		t.Fatalf("%+v, %v", r, err)
	}
	for i, want := range []run.ID{"two-r1", "two-r2"} {
		id, err := c.Runs.Rerun(t.Context(), []run.ID{"two", "two-r1"}[i], messages.Control{Repeat: true})
		if err != nil || id != want {
			t.Fatalf("rerun: %s, %v", id, err)
		}
		again, err := c.Wait(t.Context(), id)
		if err != nil || again.State != run.Succeeded || again.Session == r.Session || again.Version != r.Version {
			t.Fatalf("rerun %s: %+v, %v; want another session at version %d", id, again, err, r.Version)
		}
	}
	if _, err := c.Runs.Rerun(t.Context(), "nobody", messages.Control{}); !errors.Is(err, run.ErrUnknownRun) {
		t.Errorf("rerun of a run that nobody knows: %v", err)
	}

	// Going back.
	if _, err := c.Sessions.Rewind(t.Context(), "talk:9", "counts", messages.Task{}); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("rewind past the end: %v", err)
	}
	if _, err := c.Sessions.Rewind(t.Context(), "talk", "counts", messages.Task{}); !errors.Is(err, run.ErrMalformed) {
		t.Errorf("rewind to no version: %v", err)
	}
	id, err := c.Sessions.Rewind(t.Context(), "talk:1", "counts", messages.Task{})
	must.Do(t, err)
	back, err := c.Wait(t.Context(), id)
	if err != nil || back.State != run.Succeeded || back.Session == r.Session {
		t.Fatalf("rewind: %+v, %v", back, err)
	}
	if v, err := c.Sessions.Get(t.Context(), string(back.Session)); err != nil || v.Version != 2 || len(v.Chunks) != 2 {
		t.Errorf("after the rewind: version %d, %d chunks, %v", v.Version, len(v.Chunks), err)
	}

	// A node that takes no work has none to give away.
	if err := c.Fleet.Drain(t.Context(), host.Incarnation()); !errors.Is(err, run.ErrState) {
		t.Errorf("drain of an idle node: %v", err)
	}
	select {
	case <-host.Drained():
		t.Error("the idle node means to drain")
	default:
	}

	// It drains when it is asked to.
	must.Do(t, c.Fleet.Drain(t.Context(), n.Incarnation()))
	select {
	case <-n.Drained():
	case <-time.After(soon):
		t.Fatal("the node does not know that it is to drain")
	}
	must.Report(t, n.Close())
	if err := c.Fleet.Drain(t.Context(), n.Incarnation()); !errors.Is(err, client.ErrNoAnswer) {
		t.Errorf("drain of a node that has ended: %v", err)
	}
	if _, err := host.replays.run(t.Context(), home, "one"); !errors.Is(err, run.ErrNotSupported) {
		t.Errorf("replay without a node that has the code: %v", err)
	}

	// Other code does not repeat the recorded steps.
	n = other(counts("sum"))
	defer func() { must.Report(t, n.Close()) }()
	listed(t, c, n)
	replay, err = c.Runs.Replay(t.Context(), "one")
	if err != nil || replay.Matches || replay.Runs[0].Steps[0].Verdict != engine.StepDiffers || replay.Runs[0].Code != "sum" {
		t.Fatalf("%+v, %v", replay, err)
	}
}

// listed waits until others have a node's entry, and returns it.
func listed(t *testing.T, c *client.Client, n *Instance) messages.Node {
	t.Helper()
	for end := time.Now().Add(soon); ; time.Sleep(10 * time.Millisecond) {
		nodes, err := c.Fleet.Nodes(t.Context())
		if i := slices.IndexFunc(nodes, func(o messages.Node) bool { return o.Incarnation == n.Incarnation() }); err == nil && i >= 0 {
			return nodes[i]
		}
		if time.Now().After(end) {
			t.Fatalf("node %s is not listed: %v, %v", n.Incarnation(), nodes, err)
		}
	}
}

// TestMergeInput: invalid merge inputs are rejected with a remedy.
func TestMergeInput(t *testing.T) {
	for _, names := range [][]string{nil, {"a"}, {"a", "a"}, {"a:1", "a:2"}, {"a", "b/c"}, {"a", ""}} {
		if err := (wire.MergeInput{Sessions: names}).Check(); !errors.Is(err, run.ErrMalformed) {
			t.Errorf("%q: %v", names, err)
		}
	}
	must.Report(t, (wire.MergeInput{Sessions: []string{"a:1", "b"}}).Check())
}

// TestReadReplay: the names of a run to replay are bounded, and its ids are checked.
func TestReadReplay(t *testing.T) {
	home, id, err := readReplay([]byte(`{"tenant": "acme", "session": "s", "run": "r", "later": true}`))
	if err != nil || home != (session.Key{Tenant: "acme", ID: "s"}) || id != "r" {
		t.Errorf("%v %v, %v", home, id, err)
	}
	for body, want := range map[string]string{
		`{"tenant": "acme", "session": "s", "run": "r", "later": "` + strings.Repeat("x", maxReplayQuery) + `"}`: session.ErrTooLarge.Error(),
		`{"tenant": "acme", "session": "s", "run": 1}`:                                                           run.ErrMalformed.Error(),
		`{"tenant": "acme", "session": "s"}`:                                                                     "empty run id",
		`{"tenant": "acme", "session": "a.b", "run": "r"}`:                                                       `session id "a.b"`,
	} {
		if _, _, err := readReplay([]byte(body)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", body, err, want)
		}
	}
}

package api_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/project"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// turns appends a session with a run of n turns: an assistant's row with a call, and the
// call's result.
func turns(tb testing.TB, log commitlog.Log, k session.Key, n int, end bool) (commits int) {
	tb.Helper()
	var at commitlog.Position
	put := func(events ...session.Event) {
		now := time.UnixMilli(1_700_000_000_000)
		for i := range events {
			events[i].Time = now
		}
		var err error
		at, err = log.Append(tb.Context(), at, commitlog.Commit{Key: k, Root: k.ID, Seq: at.Seq + 1, Epoch: 1, Prev: at.Hash, Events: events})
		must.Do(tb, err)
		commits++
	}
	event := func(kind string, payload any) session.Event {
		e := must.Get(journal.NewEvent(kind, payload))(tb)
		return e
	}
	id := run.ID("r-" + string(k.ID))
	put(event(journal.KindWriter, journal.WriterOpened{Epoch: 1, Incarnation: "dead"}),
		session.OpenedEvent(session.Opening{Kind: session.OpenLeaf, Run: string(id)}),
		event(journal.KindSubmitted, struct {
			Digest string `json:"digest"`
			Task   any    `json:"task"`
		}{"d", map[string]any{"run": id, "workflow": "agent"}}),
		event(journal.KindClaimed, journal.Claimed{Attempt: 1, Epoch: 1, Home: k, Incarnation: "dead", Run: id, Workflow: "agent"}))
	for i := range n {
		path := run.Path(fmt.Sprint(i))
		call := session.ToolCall{ID: "c" + fmt.Sprint(i), Name: "noop", Args: `{"n":1}`}
		row := session.ChunkEvent(session.AssistantText("I call the tool now and say some words about it", call).Of(session.Origin{Agent: "coder", Run: string(id), Step: string(path)}))
		done := event(journal.KindStepCompleted, journal.StepCompleted{Attempt: 1, Input: "0123456789abcdef", Kind: journal.StepModel, Name: "coder", Path: path, Row: true, Run: id, Model: "echo", Summary: "calls noop"})
		row.Batch, done.Batch = string(id)+"/"+string(path), string(id)+"/"+string(path)
		put(row, done)
		tool := path.Child("0")
		row = session.ChunkEvent(session.Result(call.ID, "noop", `{"ok":true}`, false).Of(session.Origin{Agent: "coder", Run: string(id), Step: string(tool)}))
		done = event(journal.KindStepCompleted, journal.StepCompleted{Attempt: 1, Call: call.ID, Effect: "read_only", Input: "0123456789abcdef", Kind: journal.StepTool, Name: "noop", Path: tool, Row: true, Run: id})
		row.Batch, done.Batch = string(id)+"/"+string(tool), string(id)+"/"+string(tool)
		put(row, done)
	}
	if end {
		put(event(journal.KindEnded, journal.Ended{Attempt: 1, Run: id, State: run.Succeeded, Workflow: "agent", Output: "done"}))
	}
	return commits
}

// lazyNode returns a connection to a server that does not sync, so that the benchmark
// measures the processor.
func lazyNode(tb testing.TB) *api.Conn {
	tb.Helper()
	srv := natstest.Start(tb, &natsserver.Options{Lazy: true})
	o := options(srv, tb)
	o.Level, o.Partitions = streams.Lazy, 4
	c := must.Get(api.Connect(tb.Context(), o))(tb)
	tb.Cleanup(func() { must.Report(tb, c.Conn.Close()) })
	must.Do(tb, c.Streams.Provision(tb.Context()))
	return c
}

// BenchmarkRelay relays existing commits, with all that follows from them: ns/commit is the
// time on all processors together.
func BenchmarkRelay(b *testing.B) {
	c := lazyNode(b)
	log := c.Logs.Log()
	commits := 0
	for i := 0; commits < b.N; i++ {
		commits += turns(b, log, session.Key{Tenant: session.DefaultTenant, ID: c.Logs.Minter().ID(fmt.Sprintf("s%d", i))}, 10, true)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ResetTimer()
	done := make(chan error, 1)
	go func() { done <- c.Dispatch.StartRelay(ctx, nil).Wait() }()
	records := 0
	ended := 0
	runs := map[run.ID]bool{}
	for data, err := range c.Stored(ctx, streams.StreamLineage, project.LineageFilter(session.DefaultTenant, "")) {
		must.Do(b, err)
		stored := must.Get(lineage.DecodeStored(data))(b)
		for _, r := range stored {
			records++
			if r.Kind == "ended" && !runs[r.Run] {
				runs[r.Run] = true
				ended++
			}
		}
		if ended == commits/22 {
			break
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(records)/float64(commits), "records/commit")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(commits), "ns/commit")
	cancel()
	if err := <-done; err != nil {
		b.Error(err)
	}
}

package api_test

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/evidence/audit"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// dump yields the messages of Dump.
func (n *node) dump(t *testing.T) iter.Seq2[audit.Message, error] {
	return func(yield func(audit.Message, error) bool) {
		stop := errors.New("stop")
		err := n.conn.Logs.Dump(t.Context(), func(m eventlog.Stored) error {
			if !yield(audit.Message(m), nil) {
				return stop
			}
			return nil
		})
		if err != nil && !errors.Is(err, stop) {
			yield(audit.Message{}, err)
		}
	}
}

// connectOperator connects as the auditor of a fleet does.
func connectOperator(t *testing.T, srv *natsserver.Server) *api.Conn {
	t.Helper()
	user, password := srv.Operator()
	c := must.Get(api.Connect(t.Context(), &streams.Options{Options: conn.Options{Dialer: srv.Dial, User: user, Password: password}, Client: true}))(t)
	return c
}

// TestDumpIsAudited reads the streams of nodes that were killed in the middle of runs, one
// of which has an input in a blob.
func TestDumpIsAudited(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNode(t, srv, "node-1")
		n.submitted(t, nc, 0, 20)
		submit(t, nc, "agent", fmt.Sprintf(`{"id":"big","input":%q}`, strings.Repeat("long ", 20<<10)))
		time.Sleep(5 * time.Millisecond)
		n.kill()
		// While no node lives, tasks wait.
		submit(t, nc, "agent", `{"id":"waits","input":"x"}`)
		waiting := 0
		operator := connectOperator(t, srv)
		if err := operator.Logs.Dump(t.Context(), func(m eventlog.Stored) error {
			if m.Stream == streams.StreamTasks && m.Subject == "rath.task.default.anonymous.agent" && strings.Contains(string(m.Data), "waits") {
				waiting++
			}
			return nil
		}); err != nil || waiting != 1 {
			t.Errorf("the dump holds the task that waits %d times, error %v", waiting, err)
		}
		must.Report(t, operator.Conn.Close())
		n = startNode(t, srv, "node-2")
		ended(t, nc, 0, 20)
		resultOf(t, nc, "big")
		resultOf(t, nc, "waits")
		time.Sleep(time.Second) // the last records are stored
		r := must.Get(audited(t, n))(t)
		for _, v := range r.Violations {
			t.Error(v)
		}
		if r.Runs != 22 || r.Open != 0 || r.Commits < 40 {
			t.Errorf("%d runs, %d open, %d commits", r.Runs, r.Open, r.Commits)
		}
		for _, c := range r.Counts {
			switch c.Invariant {
			case audit.Blobs, audit.Lineage, audit.Results, audit.Aliases, audit.Chain, audit.OneWriter:
				if c.Checked == 0 {
					t.Errorf("%s was never looked at", c.Invariant)
				}
			}
		}
		n.stop()
	})
}

// TestDumpWithoutOldResults: expired results do not count as missing.
func TestDumpWithoutOldResults(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNode(t, srv, "node-1")
		n.submitted(t, nc, 0, 3)
		ended(t, nc, 0, 3)
		time.Sleep(time.Second) // the last records are stored
		s, err := n.operator().Stream(t.Context(), streams.StreamResult)
		if err == nil {
			err = s.Purge(t.Context()) // as time does
		}
		must.Do(t, err)
		r, err := audited(t, n)
		must.Do(t, err)
		for _, v := range r.Violations {
			t.Error(v)
		}
		n.stop()
	})
}

// audited returns the auditor's report on everything that a node has stored.
func audited(t *testing.T, n *node) (*audit.Report, error) {
	t.Helper()
	schemas, err := audit.ReadSchemas(os.DirFS("../../../messages/schema"))
	if err != nil {
		return nil, err
	}
	return audit.Run(t.Context(), n.dump(t), &audit.Options{Schemas: schemas})
}

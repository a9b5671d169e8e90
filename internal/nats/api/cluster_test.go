//go:build e2e

package api

import (
	"errors"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/testkit/sessiontest"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// TestClusterMessageIDs is the reason Rath never sends Nats-Msg-Id: on three replicas the
// server looks for duplicates before it compares sequences.
func TestClusterMessageIDs(t *testing.T) {
	ctx := t.Context()
	cluster := natstest.StartCluster(t, 3)
	c := layer.Dial(t, streamstest.ClusterOptions(cluster, 0))
	must.Do(t, c.Streams.Provision(ctx))
	k := sessiontest.Key("s")
	_, subject := must.Pair(eventlog.EventSubject(k))(t)
	send := func(last uint64, data string) error {
		_, err := c.Messages.PublishExpecting(ctx, subject, last, nats.Header{nats.MsgIdHdr: {"the same"}}, []byte(data))
		return err
	}
	must.Do(t, send(0, "first"))
	// A zombie's commit: not stored, and not acknowledged either.
	if err := send(99, "zombie"); !errors.Is(err, conn.ErrExpectation) {
		t.Errorf("got %v: a duplicate must not count as stored", err)
	}
}

// TestClusterLineage reads lineage, as a tail does, while records are stored: replicas
// that do not have them yet leave none out.
func TestClusterLineage(t *testing.T) {
	ctx := t.Context()
	cluster := natstest.StartCluster(t, 3)
	c := layer.Dial(t, streamstest.ClusterOptions(cluster, 0))
	must.Do(t, c.Streams.Provision(ctx))
	const records = 2000
	var wg sync.WaitGroup
	for i := range 3 {
		reader := answerer{c: layer.Dial(t, streamstest.ClusterOptions(cluster, i))}
		wg.Go(func() {
			var q wire.Query
			for read := 0; read < records; {
				answer, err := reader.lineage(ctx, session.DefaultTenant, q)
				if err != nil {
					t.Errorf("reader %d: %v", i, err)
					return
				}
				page := answer.(messages.LineagePage)
				for _, r := range page.Records {
					if read++; r.Record.Seq != uint64(read) {
						t.Errorf("reader %d gets record %d after %d", i, r.Record.Seq, read-1)
						return
					}
				}
				q.Cursor = page.Next
			}
		})
	}
	streamstest.PutLineage(t, c.Conn.JS, c.Logs.HomeOf(session.DefaultTenant, "r1"), 1, records)
	wg.Wait()
}

package api

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestQueryOfANodeThatEnds ends a node during a query: the client is asked to retry, and
// does not see the cancelled context of the node.
func TestQueryOfANodeThatEnds(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Conn, _ *natstest.Wire) {
		if _, _, _, err := eventlog.CreateAlias(t.Context(), c.Logs, eventlog.RunAliasSubject("default", "r1"), translate.Alias{Digest: "d", Session: c.Logs.HomeOf("default", "r1")}); err != nil {
			t.Fatal(err)
		}
		looks := make(chan struct{})
		ctx, end := context.WithCancel(t.Context())
		s := must.Get(c.ServeQueries(ctx, &Queries{
			Replay: func(ctx context.Context, _ session.Key, _ run.ID) (messages.Replay, error) {
				close(looks)
				<-ctx.Done()
				return messages.Replay{}, ctx.Err()
			},
		}))(t)
		asked := make(chan *nats.Msg, 1)
		go func() {
			m, err := c.Conn.NC.Request("rath.query.default."+messages.QueryReplay, []byte(`{"run":"r1"}`), time.Minute)
			must.Report(t, err)
			asked <- m
		}()
		<-looks
		end()
		var e struct {
			Code run.Code `json:"code"`
			Text string   `json:"error"`
		}
		if m := <-asked; m == nil || json.Unmarshal(m.Data, &e) != nil || !errors.Is(e.Code.Err(e.Text), session.ErrUnavailable) {
			t.Errorf("answer %+v, want one that says to ask again", e)
		}
		must.Report(t, s.Stop())
		synctest.Wait()
	})
}

package streams

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// refusal is an answer of JetStream's API.
func refusal(code, errCode int) string {
	return fmt.Sprintf(`{"type":"io.nats.jetstream.v1.stream_info_response","error":{"code":%d,"err_code":%d,"description":"no"}}`, code, errCode)
}

// TestStartWhileLeadersAreElected starts nodes during an election: they wait, log that
// once, and continue; they return a permanent error at once.
func TestStartWhileLeadersAreElected(t *testing.T) {
	const election = 8 * time.Second
	tests := map[string]struct {
		answer  string // to requests during the election
		only    string // of which subjects
		forever bool
		alone   bool // no server has JetStream
		want    error
		within  time.Duration
	}{
		"nobody answers":             {within: election + askStream},
		"temporarily unavailable":    {answer: refusal(503, 10008), within: election + time.Second},
		"the makers do not answer":   {only: "STREAM.CREATE", within: election + provisionFor},
		"one stream has no leader":   {only: "STREAM.INFO.TASKS", within: election + askStream},
		"nobody ever answers":        {forever: true, want: context.DeadlineExceeded, within: conn.RetryBudget + 2*askStream},
		"not enabled for the user":   {answer: refusal(503, 10039), forever: true, want: jetstream.ErrJetStreamNotEnabledForAccount, within: time.Second},
		"no servers with JetStream":  {alone: true, forever: true, want: nats.ErrNoResponders, within: time.Second},
		"one server for three":       {answer: refusal(500, codeReplicasSingle), only: "STREAM.CREATE", forever: true, want: &jetstream.APIError{ErrorCode: codeReplicasSingle}, within: time.Second},
		"no space for another store": {answer: refusal(500, codeStorageExceeded), only: "STREAM.CREATE", forever: true, want: conn.ErrFull, within: time.Second},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := natstest.Start(t, nil)
				user, password := srv.Node()
				principal, err := nats.Connect("", nats.InProcessServer(dialed(srv.Dial)), nats.UserInfo(user, password), nats.CustomInboxPrefix(conn.NodeInbox))
				must.Do(t, err)
				defer principal.Close()
				var d *natstest.Deputy
				if tc.alone {
					d = natstest.StartDeputy(t, nil)
				} else {
					d = natstest.StartDeputy(t, principal)
				}
				began := time.Now()
				d.Set(func(subject string) (string, bool) {
					return tc.answer, strings.Contains(subject, tc.only) && (tc.forever || time.Since(began) < election)
				})
				var said bytes.Buffer
				o := nodeOptions(srv)
				o.Dialer, o.User, o.Password, o.Partitions = d.InProcessConn, "", "", 0
				o.Logger = slog.New(slog.NewTextHandler(&said, nil))
				c, err := connect(t.Context(), o)
				if err == nil {
					defer c.Conn.Close()
					err = c.Provision(t.Context())
				}
				took := time.Since(began)
				if tc.forever {
					if !errors.Is(err, tc.want) || took > tc.within {
						t.Errorf("after %v: %v", took, err)
					}
					return
				}
				if err != nil || took < election || took > tc.within {
					t.Errorf("after %v: %v", took, err)
				}
				if n := strings.Count(said.String(), "elect"); n != 1 {
					t.Errorf("that it waits was told %d times:\n%s", n, &said)
				}
				must.Report(t, c.Verify(t.Context()))
			})
		})
	}
}

// dialed is a server's dialer in the shape that the NATS client takes.
type dialed func() (net.Conn, error)

func (d dialed) InProcessConn() (net.Conn, error) { return d() }

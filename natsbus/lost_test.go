package natsbus

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/natstest"
)

// TestStartWithLostStream starts a node whose cluster knows a stream in memory
// that none of its servers leads. It is made anew; a stream of the truth never
// is.
func TestStartWithLostStream(t *testing.T) {
	for stream, made := range map[string]bool{"KV_NODE": true, StreamResult: false} {
		t.Run(stream, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := natstest.Start(t, nil)
				user, password := srv.Operator()
				principal, err := nats.Connect("", nats.InProcessServer(inProcess(srv.Dial)), nats.UserInfo(user, password), nats.CustomInboxPrefix(NodeInbox))
				if err != nil {
					t.Fatal(err)
				}
				defer principal.Close()
				first := dial(t, nodeOptions(srv))
				if err := first.Provision(t.Context()); err != nil {
					t.Fatal(err)
				}
				d := startDeputy(t, principal)
				var removed atomic.Bool
				d.set(func(subject string) (string, bool) {
					if strings.Contains(subject, "STREAM.DELETE.") {
						removed.Store(true)
						if !strings.HasSuffix(subject, stream) {
							t.Errorf("asked for %s", subject)
						}
					}
					leaderless := !removed.Load() && strings.HasSuffix(subject, "STREAM.INFO."+stream)
					return `{"type":"io.nats.jetstream.api.v1.stream_info_response","config":{"name":"` + stream + `"},"cluster":{"name":"c"}}`, leaderless
				})
				o := nodeOptions(srv)
				o.Dialer, o.User, o.Password, o.Partitions = d.InProcessConn, "", "", 0
				began := time.Now()
				c, err := Connect(t.Context(), o)
				if err == nil {
					defer c.Close()
					err = c.Provision(t.Context())
				}
				took := time.Since(began)
				if removed.Load() != made || made != (err == nil) {
					t.Errorf("removed: %v, %v", removed.Load(), err)
				}
				if !made && !strings.Contains(err.Error(), stream+": ") {
					t.Errorf("the error does not name the stream: %v", err)
				}
				if took < patience || took > 2*patience {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

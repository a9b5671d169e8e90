package natstest

import (
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// Deputy is a server whose JetStream is that of another server. Requests to its API pass
// through refuse first.
type Deputy struct {
	*server.Server
	mu     sync.Mutex
	refuse func(subject string) (answer string, refused bool) // "" is none
}

// Set sets the function that decides which requests the server rejects.
func (d *Deputy) Set(refuse func(subject string) (string, bool)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refuse = refuse
}

// StartDeputy starts a server without JetStream; with a principal, that
// one answers for it.
func StartDeputy(t *testing.T, principal *nats.Conn) *Deputy {
	t.Helper()
	enter(t)
	s := must.Get(server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true}))(t)
	s.Start()
	d := &Deputy{Server: s, refuse: func(string) (string, bool) { return "", false }}
	var passing sync.WaitGroup
	t.Cleanup(func() {
		passing.Wait()
		s.Shutdown()
		s.WaitForShutdown()
	})
	if principal == nil {
		return d
	}
	nc := must.Get(nats.Connect("", nats.InProcessServer(s)))(t)
	t.Cleanup(nc.Close)
	if _, err := nc.Subscribe("$JS.API.>", func(m *nats.Msg) {
		d.mu.Lock()
		answer, refused := d.refuse(m.Subject)
		d.mu.Unlock()
		switch {
		case refused && answer != "":
			_ = m.Respond([]byte(answer)) // the asking side finds out
		case !refused:
			passing.Go(func() {
				a, err := principal.Request(m.Subject, m.Data, 10*time.Second)
				if err == nil {
					err = m.Respond(a.Data)
				}
				must.Report(t, err)
			})
		}
	}); err != nil {
		t.Fatal(err)
	}
	must.Do(t, nc.Flush())
	return d
}

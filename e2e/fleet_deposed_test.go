//go:build e2e && linux

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/fleet"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

// TestDeposedLeader cuts off the NATS server that leads the stream of a session, and reads
// the session there while the others elect a leader and store a commit. Until the server
// detects the election, it considers itself the leader: a read there may time out, but
// never returns a version older than an answer to another client.
func TestDeposedLeader(t *testing.T) {
	t.Parallel()
	w := newWorld(t, drawSeed(), shape{servers: 3})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	m, err := commitTo(ctx, w, streams.Fsync)
	if err != nil {
		w.fatal(err)
	}
	k := session.Key{Tenant: session.DefaultTenant, ID: m.c.Logs.Minter().ID("read")}
	at, err := appendTo(ctx, m.c, k, commitlog.Position{})
	if err != nil {
		w.fatal(err)
	}
	inside, outside, err := w.leaderOf(ctx, k)
	if err != nil {
		w.fatal(err)
	}

	there, err := w.connect(ctx, urlOf(inside), streams.Fsync)
	if err != nil {
		w.fatal(err)
	}
	// Without snapshots, whose stream another server may lead.
	log := struct{ commitlog.Log }{there.Logs.Log()}
	answers, err := there.ServeQueries(ctx, &api.Queries{Values: journal.NewValues(log)})
	if err != nil {
		w.fatal(err)
	}
	r, err := newReader(inside, k.ID)
	if err != nil {
		w.fatal(err)
	}
	elsewhere, err := w.connect(ctx, urlOf(outside[0]), streams.Fsync)
	if err != nil {
		w.fatal(err)
	}
	if err := r.until(ctx, 1); err != nil {
		w.fatal(err)
	}
	began, before := time.Now(), len(r.heads)
	for _, p := range outside {
		if err := errors.Join(w.f.Cut(inside, p), w.f.Cut(p, inside)); err != nil {
			w.fatal(err)
		}
	}
	stored := make(chan error, 1)
	go func() {
		_, err := appendTo(ctx, elsewhere, k, at)
		stored <- err
	}()
	for end := began.Add(30 * time.Second); time.Now().Before(end); {
		r.read(ctx)
		select {
		case err := <-stored:
			if err != nil {
				w.fatal(err)
			}
			r.told(k.ID, 2)
			t.Logf("the others stored a commit after %v", time.Since(began).Round(time.Millisecond))
			end = time.Now().Add(3 * time.Second)
		default:
		}
	}
	answered := len(r.heads) - before
	if answered == 0 {
		w.fail("nothing was read at the server that was cut off")
	}
	if err := w.f.HealAll(); err != nil {
		w.fatal(err)
	}
	if err := r.until(ctx, 2); err != nil {
		w.fatal(err)
	}
	t.Logf("%d reads were answered there, %d in all", answered, len(r.heads))
	if err := staleHead(r.heads); err != nil {
		w.fail("%v", err)
	}
	r.nc.Close()
	must.Report(t, errors.Join(answers.Stop(), there.Conn.Close(), elsewhere.Conn.Close(), m.c.Conn.Close()))
}

// urlOf is the address of one NATS server.
func urlOf(p *fleet.Process) string { return fmt.Sprintf("nats://%s:4222", p.IP()) }

// appendTo appends a row to a session.
func appendTo(ctx context.Context, c *api.Conn, k session.Key, at commitlog.Position) (commitlog.Position, error) {
	events := []session.Event{session.ChunkEvent(session.UserText(fmt.Sprint("row ", at.Seq)))}
	return c.Logs.Log().Append(ctx, at, commitlog.Commit{Key: k, Root: k.ID, Seq: at.Seq + 1, Epoch: 1, Prev: at.Hash, Events: events})
}

// leaderOf returns the NATS server that leads the stream of a session, and the
// others.
func (w *world) leaderOf(ctx context.Context, k session.Key) (leader *fleet.Process, others []*fleet.Process, err error) {
	stream, _, err := eventlog.EventSubject(k)
	if err != nil {
		return nil, nil, err
	}
	user, password := w.f.OperatorLogin()
	nc, err := nats.Connect(w.f.URLs(0), nats.UserInfo(user, password))
	if err != nil {
		return nil, nil, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, nil, err
	}
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range w.f.Servers() {
		if p.Name == s.CachedInfo().Cluster.Leader {
			leader = p
		} else {
			others = append(others, p)
		}
	}
	if leader == nil {
		err = fmt.Errorf("stream %s is led by %q", stream, s.CachedInfo().Cluster.Leader)
	}
	return leader, others, err
}

// reader reads the head of a session through one NATS server.
type reader struct {
	nc    *nats.Conn
	id    session.ID
	began time.Time
	heads []head
}

func newReader(p *fleet.Process, id session.ID) (*reader, error) {
	nc, err := nats.Connect(urlOf(p), nats.Name("reader"), nats.MaxReconnects(-1))
	return &reader{nc: nc, id: id, began: time.Now()}, err
}

// read asks once and waits a little for the answer.
func (r *reader) read(ctx context.Context) (version int) {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	start := time.Since(r.began)
	m, err := r.nc.RequestWithContext(ctx, "rath.query.default.session", fmt.Appendf(nil, `{"session":%q}`, r.id))
	if err != nil || strings.Contains(string(m.Data), `"error"`) {
		sleep(ctx, 20*time.Millisecond)
		return 0
	}
	var s struct {
		Version int `json:"version"`
	}
	if json.Unmarshal(m.Data, &s) != nil {
		return 0
	}
	r.heads = append(r.heads, head{Session: string(r.id), Start: start, End: time.Since(r.began), Version: s.Version, Asked: true})
	return s.Version
}

// told records a version that a client has received.
func (r *reader) told(id session.ID, version int) {
	at := time.Since(r.began)
	r.heads = append(r.heads, head{Session: string(id), Start: at, End: at, Version: version})
}

// until reads until the reader receives a version.
func (r *reader) until(ctx context.Context, version int) error {
	for r.read(ctx) < version {
		if ctx.Err() != nil {
			return fmt.Errorf("version %d of session %s was not read: %w", version, r.id, ctx.Err())
		}
	}
	return nil
}

package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

const acme = session.Tenant("acme")

// shelf is the blobs of a tenant, in a test.
type shelf struct {
	t *testing.T
	blob.Store
}

func shelfOf(t *testing.T, c *Archive) shelf { return shelf{t, c.logs.Blobs(acme)} }

func (s shelf) put(data []byte) blob.Digest {
	s.t.Helper()
	ref := must.Get(s.Put(s.t.Context(), bytes.NewReader(data)))(s.t)
	return ref.Digest
}

// long are the bytes of a blob in parts.
func long(seed uint64) []byte {
	data := make([]byte, 2*wire.MaxBlobPart+7)
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

// read reads a blob to its end.
func (s shelf) read(d blob.Digest) error {
	rc, err := s.Get(s.t.Context(), d)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, rc)
	return errors.Join(err, rc.Close())
}

// gone fails unless a blob's existence is as given. A blob that lacks a part fails in any
// case.
func (s shelf) gone(what string, d blob.Digest, gone bool) {
	s.t.Helper()
	err := s.read(d)
	if gone != errors.Is(err, blob.ErrNotFound) || !gone && err != nil {
		s.t.Errorf("%s: %v", what, err)
	}
}

// snapshot stores a directory of some files.
func (s shelf) snapshot(base blob.Digest, dir string, files map[string]string) blob.Digest {
	s.t.Helper()
	for p, text := range files {
		p = filepath.Join(dir, p)
		must.Do(s.t, errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)))
	}
	head := must.Get(workspace.Snapshot(s.t.Context(), s, dir, base, workspace.Limits{}))(s.t)
	return head
}

// names makes a session that names something in a commit.
func names(t *testing.T, c *Archive, id string, events ...session.Event) {
	t.Helper()
	k := session.Key{Tenant: acme, ID: c.logs.Minter().ID(id)}
	events = append([]session.Event{session.OpenedEvent(session.Opening{Kind: session.OpenLeaf})}, events...)
	must.Get(c.logs.Log().Append(t.Context(), commitlog.Position{}, commitlog.Commit{Key: k, Root: k.ID, Seq: 1, Epoch: 1, Events: events}))(t)
}

// old is the age from which on a blob goes.
const old = eventlog.BlobFresh + DefaultBlobGrace + time.Minute

// short is a grace for tests that do not depend on its length: virtual time is not free
// while a server and its connections exchange pings every other second.
const short = time.Hour

func swept(t *testing.T, op *Archive, o *SweepOptions) *Sweep {
	t.Helper()
	s := must.Get(op.SweepBlobs(t.Context(), o))(t)
	return s
}

// TestSweepKeepsWhatIsNamed: all that a log, a task, a result or a dead letter names stays,
// and all that this names; the rest goes once it is old.
func TestSweepKeepsWhatIsNamed(t *testing.T) {
	layer.BesideOperator(t, func(t *testing.T, c, op *Archive) {
		s, dir := shelfOf(t, c), t.TempDir()
		kept, lost := map[string]blob.Digest{}, map[string]blob.Digest{}
		first := s.snapshot(blob.Digest{}, dir, map[string]string{"a/b": "1", "c": "2", "large": strings.Repeat("large", 1<<20)})
		second := s.snapshot(first, dir, map[string]string{"c": "3"})
		names(t, c, "s1", session.PlacedEvent(session.Placement{Backend: "local", Head: second}))
		former := s.put([]byte("hello"))
		kept["a head of the former format"] = s.put(fmt.Appendf(nil, `{"format":1,"entries":[{"path":"f","kind":"file","size":5,"digest":"%s"}]}`, former))
		kept["its file"] = former
		names(t, c, "s2", session.PlacedEvent(session.Placement{Backend: "local", Head: kept["a head of the former format"]}))
		kept["named in large data"] = s.put([]byte("in a blob"))
		kept["across a read of it"] = s.put([]byte("across"))
		names(t, c, "s3", session.ChunkEvent(session.UserText(strings.Repeat("x", 100_000)+kept["named in large data"].String()+strings.Repeat("y", 1<<20-100_000-64-100)+kept["across a read of it"].String())))
		for what, text := range map[string]string{"an image": "see", "an image of a long row": strings.Repeat("x", 100_000)} {
			kept[what] = s.put([]byte(what))
			names(t, c, "i"+fmt.Sprint(len(text)), session.ChunkEvent(session.UserText(text).WithImages(session.Image{Digest: kept[what], Size: 1, Type: "image/png"})))
		}
		kept["long"] = s.put(long(1))
		for stream, subject := range map[string]string{
			streams.StreamTasks: "rath.task.acme.anonymous.w", streams.StreamResult: "rath.run.acme.r.result", streams.StreamDLQ: streams.PrefixDLQ + "acme.w",
		} {
			kept[stream] = s.put([]byte(stream))
			must.Get(op.conn.JS.Publish(t.Context(), subject, []byte(`{"workspace":"`+kept[stream].String()+`"}`)))(t)
		}
		names(t, c, "s4", session.ChunkEvent(session.UserText(kept["long"].String())))
		lost["nothing names it"] = s.put([]byte("unnamed"))
		lost["a long one"] = s.put(long(2))
		lost["a head"] = s.snapshot(blob.Digest{}, t.TempDir(), map[string]string{"x": "unnamed too"})

		time.Sleep(old)
		young := s.put([]byte("young"))
		if _, err := c.SweepBlobs(t.Context(), &SweepOptions{}); !errors.Is(err, conn.ErrDenied) {
			t.Errorf("a node removes blobs: %v", err)
		}
		dry := swept(t, op, &SweepOptions{DryRun: true})
		// The long one are a list and three parts, the head has a pack.
		if dry.Removed != 1+4+2 || dry.Young != 1 || len(dry.Missing) > 0 {
			t.Errorf("a dry run: %+v", dry)
		}
		for what, d := range lost {
			s.gone(what, d, false)
		}
		if other := swept(t, op, &SweepOptions{Tenant: "other"}); other.Removed != 0 {
			t.Errorf("of another tenant: %+v", other)
		}
		if got := swept(t, op, &SweepOptions{}); got.Removed != dry.Removed || got.RemovedBytes != dry.RemovedBytes {
			t.Errorf("removed %+v, the dry run said %+v", got, dry)
		}
		for what, d := range lost {
			s.gone(what, d, true)
		}
		for what, d := range kept {
			s.gone(what, d, false)
		}
		s.gone("young", young, false)
		for _, head := range []blob.Digest{first, second, kept["a head of the former format"]} {
			must.Report(t, workspace.Restore(t.Context(), s, head, filepath.Join(t.TempDir(), "restored")))
		}
		if again := swept(t, op, &SweepOptions{}); again.Removed != 0 {
			t.Errorf("again: %+v", again)
		}
	})
}

// TestSweepAhead: the clock of the sweeping machine is three days ahead of the server's. A
// blob that was just stored stays, and is removed when it is old for the server.
func TestSweepAhead(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Archive, w *natstest.Wire) {
		w.Set(natstest.Days(-3), nil)
		shelfOf(t, c).put([]byte("to be named"))
		if got := swept(t, c, &SweepOptions{DryRun: true}); got.Removed != 0 || got.Young != 1 {
			t.Errorf("at once: %+v", got)
		}
		time.Sleep(old)
		if got := swept(t, c, &SweepOptions{DryRun: true}); got.Removed != 1 {
			t.Errorf("after %v: %+v", old, got)
		}
	})
}

// TestSweepSaysWhatIsMissing: of a named head a blob was lost.
func TestSweepSaysWhatIsMissing(t *testing.T) {
	layer.BesideOperator(t, func(t *testing.T, c, op *Archive) {
		s := shelfOf(t, c)
		head := s.put(fmt.Appendf(nil, `{"format":1,"entries":[{"path":"f","kind":"file","size":5,"digest":"%s"}]}`, blob.Sum([]byte("hello"))))
		names(t, c, "s1", session.PlacedEvent(session.Placement{Backend: "local", Head: head}))
		if got := swept(t, op, &SweepOptions{DryRun: true}); len(got.Missing) != 1 || got.Missing[0] != blob.Sum([]byte("hello")) {
			t.Errorf("%+v", got)
		}
	})
}

// TestSweepStopped ends a sweep after each blob that it removes: no blob is left in part,
// and the next sweep resumes.
func TestSweepStopped(t *testing.T) {
	stop := errors.New("stopped")
	layer.BesideOperator(t, func(t *testing.T, c, op *Archive) {
		s := shelfOf(t, c)
		var unnamed []blob.Digest
		for i := range uint64(5) {
			unnamed = append(unnamed, s.put(long(i)), s.put(fmt.Append(nil, "short ", i)))
		}
		named := s.put(long(9))
		names(t, c, "s1", session.ChunkEvent(session.UserText(named.String())))
		time.Sleep(2 * short)
		for n := 0; ; n++ {
			_, err := op.SweepBlobs(t.Context(), &SweepOptions{fresh: short, Grace: short - time.Minute, after: func(step string) error {
				if step == "removed" {
					return stop
				}
				return nil
			}})
			for _, d := range unnamed {
				if err := s.read(d); err != nil && !errors.Is(err, blob.ErrNotFound) {
					t.Fatalf("after %d sweeps: %v", n, err)
				}
			}
			s.gone("named", named, false)
			if err == nil {
				break
			}
			if !errors.Is(err, stop) {
				t.Fatal(err)
			}
		}
		for _, d := range unnamed {
			s.gone("unnamed", d, true)
		}
	})
}

// TestSweepBesideWriters has writers store and ask for old blobs while they are swept, which
// they then may rely on for the time of the grace.
func TestSweepBesideWriters(t *testing.T) {
	const seed = 1
	layer.BesideOperator(t, func(t *testing.T, c, op *Archive) {
		s, r := shelfOf(t, c), rand.New(rand.NewPCG(seed, 1))
		var all [][]byte
		for i := range uint64(12) {
			all = append(all, long(100*seed+i), fmt.Appendf(nil, "short %d", i))
		}
		var digests []blob.Digest
		for _, data := range all {
			digests = append(digests, s.put(data))
		}
		time.Sleep(eventlog.BlobFresh + 2*short)
		var mu sync.Mutex
		relied := map[blob.Digest]bool{}
		rely := func(d blob.Digest) { mu.Lock(); relied[d] = true; mu.Unlock() }
		var wg sync.WaitGroup
		begin := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range 3 {
			r := rand.New(rand.NewPCG(seed, r.Uint64()))
			wg.Go(func() {
				<-begin
				for range 8 {
					i := r.IntN(len(all))
					if r.IntN(2) == 0 {
						ref, err := s.Put(ctx, bytes.NewReader(all[i]))
						if err != nil {
							t.Error(err)
							return
						}
						rely(ref.Digest)
						continue
					}
					missing, err := c.logs.MissingBlobs(ctx, acme, digests[i:i+1])
					if err != nil {
						t.Error(err)
						return
					}
					if len(missing) == 0 {
						rely(digests[i])
					}
				}
			})
		}
		at := r.IntN(20)
		began := sync.OnceFunc(func() { close(begin) })
		steps := 0
		got, err := op.SweepBlobs(t.Context(), &SweepOptions{Grace: short, after: func(string) error {
			if steps++; steps > at {
				began()
			}
			return nil
		}})
		began()
		wg.Wait()
		if err != nil || got.Removed == 0 {
			t.Fatalf("%+v, %v", got, err)
		}
		time.Sleep(short - time.Minute)
		swept(t, op, &SweepOptions{Grace: short})
		for d := range relied {
			s.gone("relied on", d, false)
		}
		time.Sleep(eventlog.BlobFresh + 2*short)
		swept(t, op, &SweepOptions{Grace: short})
		for _, d := range digests {
			s.gone("not named in time", d, true)
		}
	})
}

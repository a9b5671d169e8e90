package natsserver_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

func TestMain(m *testing.M) { natstest.Main(m) }

// resourcesExceeded is JetStream's code for a write beyond an account's limit.
const resourcesExceeded = 10002

func refused(err error) bool {
	e, ok := errors.AsType[*jetstream.APIError](err)
	return ok && e.ErrorCode == resourcesExceeded
}

func TestSpaceKept(t *testing.T) {
	for total, want := range map[int64]int64{0: 32 << 20, 100 << 20: 32 << 20, 1000 << 20: 50 << 20, 1 << 40: 256 << 20} {
		if got := (natsserver.Space{Total: total}).Kept(); got != want {
			t.Errorf("of a disk of %d bytes %d are kept, want %d", total, got, want)
		}
	}
}

// TestReserveOfFiles uses up the inodes of a server's disk, with room in bytes: the server
// stops storing before the last one is used. A disk that does not count inodes has no
// limit.
func TestReserveOfFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free, total atomic.Int64
		srv := start(t, natsserver.Options{Open: true, Space: func(string) (natsserver.Space, error) {
			return natsserver.Space{Free: 1 << 30, Total: 4 << 30, FreeFiles: free.Load(), TotalFiles: total.Load()}, nil
		}})
		nc := must.Get(nats.Connect("", nats.InProcessServer(dialer(srv.Dial))))(t)
		defer nc.Close()
		js := must.Get(jetstream.New(nc))(t)
		must.Get(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "disk", Subjects: []string{"disk"}}))(t)
		for _, step := range []struct {
			free, total int64
			stored      bool
		}{{0, 0, true}, {20_000, 20_000, true}, {600, 20_000, true}, {400, 20_000, false}, {600, 20_000, true}, {6000, 1 << 30, true}, {4000, 1 << 30, false}} {
			free.Store(step.free)
			total.Store(step.total)
			time.Sleep(2 * time.Second)
			if _, err := js.Publish(t.Context(), "disk", []byte("x")); step.stored != (err == nil) || !step.stored && !refused(err) {
				t.Errorf("with %d of %d inodes free the answer is %v", step.free, step.total, err)
			}
		}
	})
}

// TestReserve fills the disk of a server: it rejects writes to it at once before the disk
// is full, and streams in memory continue.
func TestReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free atomic.Int64
		free.Store(1 << 30)
		srv := start(t, natsserver.Options{Open: true, Space: func(string) (natsserver.Space, error) {
			return natsserver.Space{Free: free.Load(), Total: 4 << 30}, nil
		}})
		nc := must.Get(nats.Connect("", nats.InProcessServer(dialer(srv.Dial))))(t)
		defer nc.Close()
		js := must.Get(jetstream.New(nc))(t)
		for name, storage := range map[string]jetstream.StorageType{"disk": jetstream.FileStorage, "memory": jetstream.MemoryStorage} {
			must.Get(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name}, Storage: storage}))(t)
		}
		for _, step := range []struct {
			free   int64
			stored bool
		}{{1 << 30, true}, {110 << 20, true}, {90 << 20, false}, {0, false}, {110 << 20, true}, {1 << 30, true}} {
			free.Store(step.free)
			time.Sleep(2 * time.Second)
			began := time.Now()
			_, err := js.Publish(t.Context(), "disk", []byte("x"))
			if step.stored != (err == nil) || !step.stored && !refused(err) || time.Since(began) > 0 {
				t.Errorf("with %d MiB free the answer is %v after %v", step.free>>20, err, time.Since(began))
			}
			if _, err := js.Publish(t.Context(), "memory", []byte("x")); err != nil {
				t.Errorf("with %d MiB free memory refuses: %v", step.free>>20, err)
			}
			if d := srv.Disk(); d.Free != step.free || d.Failed != "" {
				t.Errorf("the disk is told as %+v", d)
			}
		}
	})
}

// TestFailedStream has a stream meet a write error, as at a full disk: from then on every
// writer is answered at once, the server restarts by itself when there is room, and no
// acknowledged message is lost.
func TestFailedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		block := filepath.Join(dir, "jetstream", "$G", "streams", "events", "msgs", "2.blk")
		srv := start(t, natsserver.Options{StoreDir: dir, Open: true, Space: func(string) (natsserver.Space, error) {
			if _, err := os.Stat(filepath.Join(block, "full")); err == nil {
				return natsserver.Space{Total: 1 << 30}, nil
			}
			return natsserver.Space{Free: 1 << 29, Total: 1 << 30}, nil
		}})
		nc, err := nats.Connect("", nats.InProcessServer(dialer(srv.Dial)), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
		must.Do(t, err)
		defer nc.Close()
		js, err := jetstream.New(nc)
		must.Do(t, err)
		for _, name := range []string{"events", "others"} {
			must.Get(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name}, MaxBytes: 120_000}))(t)
		}
		acked := 0
		publish := func(subject string) error {
			_, err := js.Publish(t.Context(), subject, make([]byte, 10_000), jetstream.WithRetryAttempts(0))
			if err == nil && subject == "events" {
				acked++
			}
			return err
		}
		must.Do(t, publish("events"))
		// A directory in the place of the next file fails the write like a full disk.
		must.Do(t, os.MkdirAll(filepath.Join(block, "full"), 0o700))
		for n := 0; err == nil && n < 20; n++ {
			err = publish("events")
		}
		if err == nil || refused(err) {
			t.Fatalf("the stream does not fail: %v", err)
		}
		time.Sleep(2 * time.Second)
		for range 3 {
			for _, subject := range []string{"events", "others"} {
				began := time.Now()
				if err := publish(subject); !refused(err) || time.Since(began) > 0 {
					t.Errorf("%s: the answer is %v after %v", subject, err, time.Since(began))
				}
			}
			if d := srv.Disk(); d.Failed == "" || d.Free != 0 {
				t.Errorf("the disk is told as %+v", d)
			}
			time.Sleep(time.Minute)
		}
		// At once, since the server may be looking.
		must.Do(t, os.Rename(block, filepath.Join(dir, "away")))
		time.Sleep(2 * time.Second)
		if d := srv.Disk(); d.Failed != "" {
			t.Errorf("with room the disk is told as %+v", d)
		}
		for _, subject := range []string{"events", "others"} {
			if err := publish(subject); err != nil {
				t.Errorf("%s with room: %v", subject, err)
			}
		}
		s, err := js.Stream(t.Context(), "events")
		must.Do(t, err)
		for seq := range acked {
			if _, err := s.GetMsg(t.Context(), uint64(seq)+1); err != nil {
				t.Errorf("message %d of %d: %v", seq+1, acked, err)
			}
		}
	})
}

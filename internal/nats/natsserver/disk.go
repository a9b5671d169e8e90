package natsserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rathcluster/rath/internal/nats/permission"
)

// A stream that meets a write error answers no writer until its server restarts. So the
// server keeps a reserve on its disk: below half of it, JetStream rejects writes at once.
// If other programs use that space too and a stream fails all the same, the server rejects
// writes to the other streams as well, and restarts in place as soon as the disk has room.

// Space is the free space of a disk for this user, in bytes, and its free inodes: each file
// and directory takes one. A file system that does not count inodes has none in total.
type Space struct{ Free, Total, FreeFiles, TotalFiles int64 }

const (
	// The reserve is a part of the disk, in percent, within bounds.
	keptPercent      = 5
	minKept, maxKept = 32 << 20, 256 << 20

	minKeptFiles, maxKeptFiles = 500, 10_000

	// lookEvery is how often the server checks its disk, and lookClose how often when less
	// than closeToEmpty reserves are free: writers must not fill the disk between two
	// checks.
	lookEvery    = time.Second
	lookClose    = 100 * time.Millisecond
	closeToEmpty = 4
	// restFirst and restMost bound the time between attempts to start again.
	restFirst = time.Second
	restMost  = time.Minute
)

// Kept is the reserve: the bytes that the store keeps free on such a disk, for messages
// that end work in progress. Below half of it the server stores nothing.
func (s Space) Kept() int64 { return min(max(s.Total/100*keptPercent, minKept), maxKept) }

// KeptFiles is the reserve of inodes, likewise; 0 where they are not counted.
func (s Space) KeptFiles() int64 {
	if s.TotalFiles == 0 {
		return 0
	}
	return min(max(s.TotalFiles/100*keptPercent, minKeptFiles), maxKeptFiles)
}

// below reports whether less than a part of the reserve is free, in bytes or inodes.
func (s Space) below(part float64) bool {
	less := func(free, kept int64) bool { return float64(free) < part*float64(kept) }
	return less(s.Free, s.Kept()) || less(s.FreeFiles, s.KeptFiles())
}

// Disk is the last observed state of a server's disk.
type Disk struct {
	Space
	// Failed is the reason the server stores nothing until it restarts; "" while it stores.
	Failed string
}

// Disk returns the state of the server's disk, without waiting; zero without Options.Space.
func (s *Server) Disk() Disk {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.disk
}

// tend checks the disk with the keeper, after wait and then again until ctx ends.
func (s *Server) tend(ctx context.Context, k *keeper, wait time.Duration) {
	defer close(s.tended)
	t := time.NewTimer(wait)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			t.Reset(k.look(ctx))
		case <-ctx.Done():
			return
		}
	}
}

// keeper is the state of tend.
type keeper struct {
	s      *Server
	failed string         // see Disk
	closed *server.Server // rejects writes
	next   time.Time      // not restarted before
	rest   time.Duration
	blind  bool // the disk could not be read
}

// look acts on the state of the disk and returns the time until the next look.
func (k *keeper) look(ctx context.Context) time.Duration {
	space, err := k.s.o.Space(k.s.dir)
	if err != nil {
		if !k.blind {
			k.s.log.Warnf("how full the disk of store directory %s is could not be asked: %v", k.s.dir, err)
		}
		k.blind = true
		return lookEvery
	}
	k.blind = false
	if k.failed == "" {
		k.failed = writeError(k.s.srv.Load())
		if k.failed != "" {
			k.s.log.Errorf("store directory %s: %s: writes are rejected until the server restarts, when there is room", k.s.dir, k.failed)
		}
	}
	if k.failed != "" && !space.below(1) && !time.Now().Before(k.next) {
		k.again(ctx)
	}
	if err := k.close(k.failed != "" || space.below(0.5)); err != nil {
		k.s.log.Errorf("store directory %s: %v", k.s.dir, err)
	}
	k.s.mu.Lock()
	k.s.disk = Disk{space, k.failed}
	k.s.mu.Unlock()
	if space.below(closeToEmpty) {
		return lookClose
	}
	return lookEvery
}

// writeError returns the write error that a stream has met, "" if none.
func writeError(srv *server.Server) string {
	// Without a cluster Healthz checks only the streams of this server.
	for _, e := range srv.Healthz(&server.HealthzOptions{Details: true}).Errors {
		if e.Type == server.HealthzErrorJetStream || e.Type == server.HealthzErrorStream && strings.Contains(e.Error, "write error") {
			return e.Error
		}
	}
	return ""
}

// again starts the server over the same directory a second time. Its clients connect again by
// themselves.
func (k *keeper) again(ctx context.Context) {
	err := probeWritable(k.s.dir)
	if err != nil && k.s.gate != nil && !errors.Is(err, ErrStoreFull) {
		k.s.gate.broken(err) // writes that it did not store may be lost
	}
	if err == nil {
		old := k.s.srv.Load()
		old.Shutdown()
		old.WaitForShutdown()
		var srv *server.Server
		if srv, err = k.s.boot(ctx); err == nil {
			k.s.srv.Store(srv)
			k.failed = ""
			k.s.log.Warnf("store directory %s has room again, and its server has started again", k.s.dir)
		}
	}
	if err != nil {
		k.s.log.Errorf("store directory %s: its server does not start again yet: %v", k.s.dir, err)
	}
	// A server whose disk fails repeatedly is restarted less and less often.
	if time.Since(k.next) > 2*restMost {
		k.rest = restFirst
	}
	k.next, k.rest = time.Now().Add(k.rest), min(2*k.rest, restMost)
}

// close makes the server reject writes to disk, or accept them again.
func (k *keeper) close(closed bool) error {
	srv := k.s.srv.Load()
	if closed == (k.closed == srv) {
		return nil
	}
	name := permission.AccountMain
	if k.s.open {
		name = server.DEFAULT_GLOBAL_ACCOUNT
	}
	acc, err := srv.LookupAccount(name)
	if err != nil {
		return fmt.Errorf("account %s: %w", name, err)
	}
	usage := acc.JetStreamUsage()
	limits := usage.Limits
	limits.MaxStore = -1
	if closed {
		limits.MaxStore = 0
	}
	err = acc.UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": limits})
	if err != nil {
		return fmt.Errorf("limit account %s: %w", name, err)
	}
	k.closed = nil
	if closed {
		k.closed = srv
	}
	return nil
}

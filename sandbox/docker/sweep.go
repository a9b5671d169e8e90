package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/sandbox/proc"
)

// sweepEvery is the interval between two sweeps.
const sweepEvery = 15 * time.Second

// Run implements sandbox.Sweeper. Until ctx ends, it removes leftover containers, at once
// and every 15 s, and keeps the pool of Options.Warm filled. A container ends by itself
// when its holder does. Run finds containers that were never started, or whose session has
// a newer one. It is called once.
func (b *driver) Run(ctx context.Context) error {
	b.pool.mu.Lock()
	b.pool.running = true
	b.pool.mu.Unlock()
	sweep := func() {
		if n, err := b.Sweep(ctx); err != nil && ctx.Err() == nil {
			b.log.Warn("containers are left", "error", err)
		} else if n > 0 {
			b.log.Info("removed containers that were left", "containers", n)
		}
		if err := b.giveUp(b.pool.expire(false)); err != nil {
			b.log.Warn("containers that waited are left", "error", err)
		}
	}
	sweep()
	again := time.NewTimer(0)
	for tick := time.Tick(sweepEvery); ; {
		select {
		case <-ctx.Done():
			return b.giveUp(b.pool.expire(true))
		case <-tick:
			sweep()
		case <-b.pool.want:
			again.Reset(0)
		case <-again.C:
			if wait := b.refill(ctx); wait > 0 {
				again.Reset(wait)
			}
		}
	}
}

// Sweep implements sandbox.Sweeper. It removes the containers whose process has ended, and
// containers whose owner has another one of a higher epoch, and returns their number. The
// end of a process in another PID namespace cannot be determined; its container ends by
// itself.
func (b *driver) Sweep(ctx context.Context) (removed int, err error) {
	if err := b.reach(); err != nil {
		return 0, fmt.Errorf("docker: sweep: %w", err)
	}
	self := proc.NewLease("", "", 0)
	asking, cancel := b.asking(ctx)
	all, err := b.engine.list(asking, labelLease)
	cancel()
	if err != nil {
		return 0, fmt.Errorf("docker: sweep: %w", b.explain("list containers", err))
	}
	highest := make(map[string]uint64)
	for _, c := range all {
		if owner, epoch, ok := parseName(c.Name); ok {
			highest[owner] = max(highest[owner], epoch)
		}
	}
	var errs []error
	kept := make(map[string]bool)
	for _, c := range all {
		owner, epoch, owned := parseName(c.Name)
		if !gone(c, self) && (!owned || epoch == highest[owner]) {
			kept[c.Labels[labelFolder]] = true
			continue
		}
		asking, cancel := b.asking(ctx)
		err := b.engine.remove(asking, c.ID)
		cancel()
		if err != nil {
			errs = append(errs, fmt.Errorf("docker: sweep: remove %s: %w", c.Name, err))
			kept[c.Labels[labelFolder]] = true
			continue
		}
		removed++
	}
	return removed, errors.Join(append(errs, b.sweepFolders(kept))...)
}

// gone reports whether the process that opened a container has ended.
func gone(c listed, self proc.Lease) bool {
	var l proc.Lease
	if json.Unmarshal([]byte(c.Labels[labelLease]), &l) != nil {
		return false // not ours
	}
	return l.Boot != self.Boot || c.Labels[labelSpace] == pidSpace() && !l.Alive()
}

// sweepFolders removes the folders of containers whose process has ended.
func (b *driver) sweepFolders(kept map[string]bool) error {
	folders, err := filepath.Glob(filepath.Join(b.o.State, "box-*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, folder := range folders {
		if kept[folder] {
			continue
		}
		if l, ok := proc.Maker(filepath.Base(folder)); ok && l.Alive() {
			continue
		}
		errs = append(errs, os.RemoveAll(folder))
	}
	return errors.Join(errs...)
}

// parseName parses a name of containerName; ok is false for a container without an owner.
func parseName(name string) (owner string, epoch uint64, ok bool) {
	f := strings.Split(name, "-")
	if len(f) != 4 || f[0] != "rath" {
		return "", 0, false
	}
	epoch, err := strconv.ParseUint(f[2], 10, 64)
	return f[1], epoch, err == nil
}

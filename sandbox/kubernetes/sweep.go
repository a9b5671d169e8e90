package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// sweepEvery is the interval between two sweeps.
const sweepEvery = 15 * time.Second

// Run implements sandbox.Sweeper. It removes leftover pods, at once and every 15 s, until
// ctx ends. The daemon of a pod ends by itself when its holder does. Run finds the ended
// pods, pods that never ran, and pods whose session has a newer one, also of holders that
// are gone. It is called once.
func (b *driver) Run(ctx context.Context) error {
	for tick := time.Tick(sweepEvery); ; {
		if n, err := b.Sweep(ctx); err != nil && ctx.Err() == nil {
			b.log.Warn("pods of sandboxes are left", "error", err)
		} else if n > 0 {
			b.log.Info("removed pods of sandboxes that were left", "pods", n)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
	}
}

// Sweep implements sandbox.Sweeper. It removes the pods of sandboxes in the namespace that
// have ended, pods that do not run and no longer have a waiting holder, and pods whose
// owner has another one of a higher epoch. It returns their number.
func (b *driver) Sweep(ctx context.Context) (removed int, err error) {
	in, err := b.reach(ctx)
	if err != nil {
		return 0, fmt.Errorf("kubernetes: sweep: %w", err)
	}
	all, err := in.list(ctx, labelName+"="+nameValue)
	if err != nil {
		return 0, fmt.Errorf("kubernetes: sweep: list pods: %w", err)
	}
	highest := make(map[string]uint64)
	for _, p := range all {
		if owner, epoch, ok := p.lease(); ok && !p.ended() {
			highest[owner] = max(highest[owner], epoch)
		}
	}
	var errs []error
	for _, p := range all {
		owner, epoch, owned := p.lease()
		// The clocks of the machines may differ.
		forgotten := !p.running() && time.Since(p.Metadata.CreationTimestamp) > 2*b.o.Start+time.Minute
		if p.Metadata.DeletionTimestamp != nil || !p.ended() && !forgotten && !(owned && epoch < highest[owner]) {
			continue
		}
		if err := in.remove(ctx, p.Metadata.Name); err != nil {
			errs = append(errs, fmt.Errorf("kubernetes: sweep: delete pod %s: %w", p.Metadata.Name, err))
			continue
		}
		removed++
	}
	return removed, errors.Join(errs...)
}

// supersede deletes the pods of an owner that have a lower epoch.
func (c *cluster) supersede(ctx context.Context, owner string, epoch uint64) error {
	all, err := c.list(ctx, labelOwner+"="+owner)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range all {
		if _, e, ok := p.lease(); ok && e < epoch && p.Metadata.DeletionTimestamp == nil {
			errs = append(errs, c.remove(ctx, p.Metadata.Name))
		}
	}
	return errors.Join(errs...)
}

// lease returns the owner and epoch of a pod.
func (s seen) lease() (owner string, epoch uint64, ok bool) {
	owner = s.Metadata.Labels[labelOwner]
	epoch, err := strconv.ParseUint(s.Metadata.Labels[labelEpoch], 10, 64)
	return owner, epoch, err == nil && owner != ""
}

package journal

import (
	"context"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// maxFolds bounds the cached folds of Recorded.
const maxFolds = 64

// fold is a cached fold for Recorded: the branches of a fan-out all ask about the run
// that opened them, at nearly the same time.
type fold struct {
	turn  chan struct{} // holds a token while a caller reads
	began uint64        // tick of the start of the last read
	w     *StateMachine // the log as of that read, nil if it failed
	runs  map[run.ID]*ClaimResult
}

// Recorded returns the records of a run in a session's log, without a claim. It is used
// to replay a run around a branch. The result is never older than the call. Concurrent
// callers share one read, and each read continues at the end of the last one. The
// result is therefore shared too and must not be changed. It returns ErrUnknownRun if
// the log does not hold the run.
func (v *Values) Recorded(ctx context.Context, k session.Key, id run.ID) (*ClaimResult, error) {
	asked := v.ticks.Add(1)
	f := v.foldOf(k)
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("journal: read %s: %w", k, context.Cause(ctx))
	}
	if f.w == nil || f.began < asked {
		f.began = v.ticks.Add(1)
		if err := f.read(ctx, v, k); err != nil {
			return nil, err
		}
	}
	if g := f.runs[id]; g != nil {
		return g, nil
	}
	r := f.w.state.Run(id)
	if r == nil {
		return nil, fmt.Errorf("journal: %s is not in the log of %s: %w", id, k, run.ErrUnknownRun)
	}
	f.runs[id] = f.w.grant(r, r.State)
	return f.runs[id], nil
}

// read folds the log beyond the last read, or all of it.
func (f *fold) read(ctx context.Context, v *Values, k session.Key) error {
	w := f.w
	f.w = nil // in case the read fails midway
	if w != nil {
		at := w.at
		ok, err := readTail(ctx, v.log, k, at, func(e commitlog.Entry) (bool, error) { return true, w.Fold(e) })
		if err != nil {
			return err
		}
		if ok {
			if w.at != at {
				f.runs = map[run.ID]*ClaimResult{}
			}
			f.w = w
			return nil
		}
	}
	w, err := LoadStateMachine(ctx, v.log, v, k, "")
	if err == nil {
		f.w, f.runs = w, map[run.ID]*ClaimResult{}
	}
	return err
}

// foldOf returns the cached fold of a log, and evicts the least recently used one if
// there are too many.
func (v *Values) foldOf(k session.Key) *fold {
	v.mu.Lock()
	defer v.mu.Unlock()
	f := v.folds[k]
	if f == nil {
		f = &fold{turn: make(chan struct{}, 1)}
		v.folds[k] = f
	}
	if at := slices.Index(v.foldOrder, k); at >= 0 {
		v.foldOrder = slices.Delete(v.foldOrder, at, at+1)
	}
	v.foldOrder = append(v.foldOrder, k)
	if len(v.foldOrder) > maxFolds {
		delete(v.folds, v.foldOrder[0])
		v.foldOrder = slices.Delete(v.foldOrder, 0, 1)
	}
	return f
}

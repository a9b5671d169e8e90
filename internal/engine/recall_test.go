package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// awayBlobs are unavailable for a while.
type awayBlobs struct {
	blob.Store
	put, get bool // the failing operation
}

var errFarAway = errors.New("no responders")

func (b *awayBlobs) Put(ctx context.Context, r io.Reader) (blob.Ref, error) {
	if b.put {
		return blob.Ref{}, errFarAway
	}
	return b.Store.Put(ctx, r)
}

func (b *awayBlobs) Get(ctx context.Context, d blob.Digest) (io.ReadCloser, error) {
	if b.get {
		return nil, errFarAway
	}
	return b.Store.Get(ctx, d)
}

// TestRecallWithoutBlobs: if the notes of a recall cannot be stored, or read again, the
// attempt ends and not the run.
func TestRecallWithoutBlobs(t *testing.T) {
	notes := notebook.New(nil)
	check(t, notes.Write(t.Context(), "memory://user/memories/prefs/1", "Likes dark colours.", memory.Origin{}))
	var w world
	blobs := &awayBlobs{Store: blob.NewMemory(), put: true}
	process := func() *inprocess.Runtime {
		rt := w.runtime(nil)
		rt.Runtime.Memory = func(context.Context, session.Tenant, string) (memory.Store, error) { return notes, nil }
		rt.Runtime.Blobs = func(session.Tenant) blob.Store { return blobs }
		return rt
	}
	cut := errors.New("the process dies")
	work := func(ctx context.Context, s session.Session) (session.Session, error) {
		hits, err := flow.Recall(ctx, "m", "which colours?", 1)
		if err != nil {
			return s, err
		}
		if len(hits) != 1 {
			t.Errorf("recalled %+v", hits)
		}
		if cut != nil {
			return s, errors.Join(cut, session.ErrUnavailable)
		}
		return s.With(session.UserText("done")), nil
	}
	gone := func(want error, change ...func(*journal.Task)) {
		t.Helper()
		if state, err := start(t, process(), work, change...).Forward(t.Context()); state != run.Running || !errors.Is(err, want) || !errors.Is(err, session.ErrUnavailable) {
			t.Fatalf("state %s: %v", state, err)
		}
	}
	gone(errFarAway)
	blobs.put = false
	gone(cut, resume)
	blobs.get, cut = true, nil
	gone(errFarAway, resume)
	blobs.get = false
	forward(t, t.Context(), start(t, process(), work, resume), run.Succeeded)
}

// wordy finds by keyword alone, and reports this.
type wordy struct{ memory.Store }

func (w wordy) Find(ctx context.Context, q memory.Query) ([]memory.Hit, error) {
	hits, err := w.Store.Find(ctx, q)
	return hits, errors.Join(err, fmt.Errorf("%w: model vectors: no server", memory.ErrWordsOnly))
}

// TestRecallByWordsAlone: a recall whose query got no vector finds notes by keyword, and
// its step has the reason.
func TestRecallByWordsAlone(t *testing.T) {
	notes := notebook.New(nil)
	check(t, notes.Write(t.Context(), "memory://user/memories/prefs/1", "Likes dark colours.", memory.Origin{}))
	var w world
	rt := w.runtime(nil)
	rt.Runtime.Memory = func(context.Context, session.Tenant, string) (memory.Store, error) { return wordy{notes}, nil }
	ex := start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
		hits, err := flow.Recall(ctx, "m", "which colours?", 1)
		if err != nil || len(hits) != 1 {
			t.Errorf("recalled %+v: %v", hits, err)
		}
		return s.With(session.UserText("done")), nil
	})
	forward(t, t.Context(), ex, run.Succeeded)
	var said strings.Builder
	for _, step := range w.steps(t, home) {
		said.WriteString(step.Summary)
	}
	if want := "recalls 1 note; memory: found by words alone: model vectors: no server"; said.String() != want {
		t.Errorf("the step says %q, want %q", said.String(), want)
	}
}

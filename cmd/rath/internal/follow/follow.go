package follow

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Watch follows a run until it ends or a person has to decide. root is the tree of its
// session; with "" Watch finds it in the lineage after a cursor.
func Watch(ctx context.Context, s *app.System, id run.ID, root session.ID, after string, w Handlers) (Outcome, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel(nil)
	if w.Follower == nil {
		var err error
		if w.Follower, err = s.Follow(ctx, id); err != nil {
			return Outcome{}, err
		}
	}
	o := &watcher{
		s: s, w: w, id: id, root: root, last: time.Now(),
		known: map[run.ID]bool{}, asked: map[run.ID]messages.Record{}, told: map[run.ID]bool{},
	}
	h := heard{
		records: make(chan messages.Record), deltas: make(chan messages.Delta, 256),
		results: make(chan messages.Result, 1), held: make(chan messages.Record, 1),
	}
	for _, listen := range []func() error{
		func() error { return h.tail(ctx, s.Lineage.Tail(ctx, string(root), after)) },
		func() error { return h.follow(ctx, w.Follower.All(ctx), w.Held != nil) },
	} {
		group.Go(func() {
			if err := listen(); err != nil {
				cancel(err)
			}
		})
	}
	var failed <-chan error
	if s.Instance != nil {
		failed = s.Instance.Failed()
	}
	tick := time.NewTicker(idleEvery)
	defer tick.Stop()
	var patience <-chan time.Time
	standing := make(chan []messages.Record, 1)
	look := time.After(askedAfter)
	live := make(chan *messages.Live, 1)
	ask := time.After(liveAfter)
	for {
		select {
		case <-ask:
			if w.Live == nil {
				break
			}
			if time.Since(o.last) < liveAfter {
				ask = time.After(liveAfter)
				break
			}
			group.Go(func() {
				l, err := s.Runs.Live(ctx, id)
				if err != nil {
					live <- nil // asked again
					return
				}
				live <- &l
			})
		case l := <-live:
			if ask = time.After(liveAfter); l != nil && o.out.Result == nil {
				w.Live(l)
			}
		case r := <-h.records:
			o.record(r)
		case r := <-h.held:
			w.Held(r)
		case d := <-h.deltas:
			o.last = time.Now()
			if w.Delta != nil {
				w.Delta(d)
			}
		case r := <-h.results:
			o.out.Result = &r
			patience = time.After(lastRecords)
			if r.Attempt == 0 && o.root == "" {
				return o.out, nil // rejected before its first record
			}
		case <-patience:
			return o.out, nil
		case <-look:
			if o.begun || len(o.known) > 0 && !o.known[id] {
				break
			}
			group.Go(func() {
				all, err := questions(ctx, s, id)
				if err != nil {
					all = nil // asked again
				}
				standing <- all
			})
		case all := <-standing:
			if len(all) == 0 {
				look = time.After(askedAgain)
			}
			o.stand(all)
			if len(all) > 0 && all[0].Kind == "" && all[0].Reason != "" && w.Held != nil {
				w.Held(all[0])
			}
		case <-tick.C:
			if o.rests() {
				return o.out, nil
			}
		case err := <-failed:
			return o.out, err
		case to := <-s.Moved:
			return o.out, s.Elsewhere(to, s.Hint("show", string(id), "--steps", "-f"))
		case <-ctx.Done():
			err := context.Cause(ctx)
			if errors.Is(err, context.Canceled) {
				err = app.ErrInterrupted
			}
			return o.out, err
		}
		if o.ended && o.out.Result != nil {
			return o.out, nil
		}
	}
}

// heard holds the messages of a run from the servers.
type heard struct {
	records chan messages.Record
	deltas  chan messages.Delta
	results chan messages.Result
	held    chan messages.Record
}

// tail passes records on until they end.
func (h *heard) tail(ctx context.Context, records iter.Seq2[messages.LineageRecord, error]) error {
	for r, err := range records {
		if err != nil {
			return err
		}
		select {
		case h.records <- r.Record:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// follow passes on the messages of a run until it ends. With held it also passes on,
// once, that the run's task waits for room.
func (h *heard) follow(ctx context.Context, updates iter.Seq2[client.Update, error], held bool) error {
	for u, err := range updates {
		switch {
		case err != nil:
			return err
		case u.Result != nil:
			h.results <- *u.Result
		case u.Event != nil && u.Event.Kind == messages.KindHeld && held:
			held = false
			h.held <- *u.Event
		case u.Delta != nil:
			select {
			case h.deltas <- *u.Delta:
			case <-ctx.Done():
				return nil
			}
		}
	}
	return nil
}

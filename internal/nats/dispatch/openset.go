package dispatch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/schedule"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/session"
)

// The open set of a partition lies in the stream SNAP as pages, and a root that names them.
// It is a cache like a snapshot: its reader uses a root only if its commit is in the event
// stream, and only with the pages of that root.
//
// A page has two places. A changed page goes to the place that the root does not name, so
// that the previous root stays whole until the next one is stored. The root is written by
// compare-and-set: of two relays one is rejected, and stands down.

// openSet is this relay's state of the stored open set.
type openSet struct {
	root     openSetRoot
	revision uint64 // of the root's message; zero if there is none
}

type openSetRoot struct {
	Format int          `json:"format"`
	Token  uint64       `json:"token"` // of the last folded commit
	Hash   session.Hash `json:"hash"`
	Pages  []openPage   `json:"pages"`
}

type openPage struct {
	Digest string `json:"d,omitempty"` // "" for an empty page
	Place  int    `json:"p,omitempty"`
}

// openSetFormat is the format number of roots and pages.
const openSetFormat = schedule.Format

// errRootTaken is returned by a relay that finds another relay's root.
var errRootTaken = errors.New("nats/dispatch: another relay has saved the open set of this partition")

func (d *dispatcher) rootSubject() string {
	return eventlog.CheckpointSubject("openset", d.generation, d.partition)
}

func (d *dispatcher) pageSubject(page, place int) string {
	return fmt.Sprintf("%s.%d.%d", eventlog.CheckpointSubject("openpage", d.generation, d.partition), page, place)
}

func digestOfPage(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// load starts from the stored open set, if the event stream still has the same commit at
// its position.
func (d *dispatcher) load(ctx context.Context) error {
	d.s, d.at, d.set = schedule.New(d.options()), commitlog.Position{}, openSet{}
	var root openSetRoot
	revision, err := d.c.logs.LoadCheckpoint(ctx, d.rootSubject(), &root)
	if err != nil {
		return err
	}
	d.set.revision = revision
	if root.Format != openSetFormat || root.Token == 0 {
		return nil
	}
	m, err := d.c.messages.LeaderGet(ctx, d.stream, conn.GetRequest{Seq: root.Token})
	switch {
	case errors.Is(err, conn.ErrNoMessage):
		return nil
	case err != nil:
		return fmt.Errorf("nats/dispatch: open set of %s: %w", d.stream, err)
	case commitlog.HashOf(m.Data) != root.Hash:
		return nil
	}
	pages, err := d.loadPages(ctx, root.Pages)
	if err != nil || pages == nil {
		return err
	}
	s, err := schedule.Restore(d.options(), time.Now(), pages)
	if err != nil {
		d.c.conn.Logger.Warn("the stored open set cannot be read; the event stream is read from its beginning", "stream", d.stream, "err", err)
		return nil
	}
	d.s, d.at, d.set.root = s, commitlog.Position{Token: root.Token, Hash: root.Hash}, root
	return nil
}

// pagesAtOnce bounds the pages that are read or stored concurrently.
const pagesAtOnce = 16

// loadPages reads the pages of a root, nil if they do not match it.
func (d *dispatcher) loadPages(ctx context.Context, named []openPage) ([][]byte, error) {
	pages := make([][]byte, len(named))
	errs := make([]error, len(named))
	room := make(chan struct{}, pagesAtOnce)
	var work sync.WaitGroup
	for i, p := range named {
		if p.Digest == "" {
			continue
		}
		room <- struct{}{}
		work.Go(func() {
			defer func() { <-room }()
			m, err := d.c.messages.LeaderLast(ctx, streams.StreamSnap, d.pageSubject(i, p.Place))
			if err == nil {
				if pages[i], err = eventlog.Unpack(m.Data); err == nil && digestOfPage(pages[i]) != p.Digest {
					err = conn.ErrNoMessage
				}
			}
			errs[i] = err
		})
	}
	work.Wait()
	for i, err := range errs {
		switch {
		case errors.Is(err, conn.ErrNoMessage):
			d.c.conn.Logger.Warn("a page of the stored open set is missing; the event stream is read from its beginning", "stream", d.stream, "page", i)
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("nats/dispatch: open set of %s: page %d: %w", d.stream, i, err)
		}
	}
	return pages, nil
}

// saved is the result of saving the open set.
type saved struct {
	set   openSet
	pages map[int][]byte
	err   error
}

// pagesPerTurn bounds the pages that are gathered in one turn of the pump. Encoding one
// takes a fraction of a millisecond, and the bound exceeds the pages that a turn changes.
const pagesPerTurn = 4

// gather collects some of the changed pages, and once all are there stores them and a root
// for them in the background. The result is sent on done.
func (d *dispatcher) gather(ctx context.Context, done chan<- saved) {
	pages, more, err := d.s.Pages.Take(pagesPerTurn)
	maps.Copy(d.gathered, pages)
	if err == nil && more {
		return
	}
	r := saved{set: d.set, pages: d.gathered, err: err}
	d.gathered = nil
	d.pace.Saved()
	if err != nil {
		done <- r
		return
	}
	r.set.root = openSetRoot{Format: openSetFormat, Token: d.at.Token, Hash: d.at.Hash, Pages: make([]openPage, d.s.Pages.Count())}
	copy(r.set.root.Pages, d.set.root.Pages)
	d.work.Go(func() {
		r.set.revision, r.err = d.store(ctx, d.set.revision, &r.set.root, r.pages)
		done <- r
	})
}

// hasSaved records the result of a save: pages that were not stored are part of the next
// root.
func (d *dispatcher) hasSaved(ctx context.Context, r saved) error {
	if r.err == nil {
		d.set = r.set
		return nil
	}
	d.s.Pages.Unsaved(r.pages)
	d.pace.Changed()
	if errors.Is(r.err, errRootTaken) {
		return r.err
	}
	if ctx.Err() == nil {
		d.c.conn.Logger.Warn("the open set was not saved; commits will be read again after a restart", "stream", d.stream, "err", r.err)
	}
	return nil
}

// store stores pages and then the root that names them, after the root of a
// revision.
func (d *dispatcher) store(ctx context.Context, last uint64, root *openSetRoot, pages map[int][]byte) (revision uint64, err error) {
	room := make(chan struct{}, pagesAtOnce)
	errs := make(chan error, len(pages))
	var work sync.WaitGroup
	for i, data := range pages {
		if data == nil {
			root.Pages[i] = openPage{}
			continue
		}
		digest := digestOfPage(data)
		if root.Pages[i].Digest == digest {
			continue
		}
		root.Pages[i] = openPage{Digest: digest, Place: 1 - root.Pages[i].Place}
		subject := d.pageSubject(i, root.Pages[i].Place)
		room <- struct{}{}
		work.Go(func() {
			defer func() { <-room }()
			errs <- d.c.storePage(ctx, subject, data)
		})
	}
	work.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return 0, err
		}
	}
	body, err := json.Marshal(root)
	if err == nil {
		body, err = eventlog.Pack(body)
	}
	if err != nil {
		return 0, fmt.Errorf("nats/dispatch: save open set: %w", err)
	}
	revision, err = d.c.messages.PublishExpecting(ctx, d.rootSubject(), last, nil, body)
	if !errors.Is(err, conn.ErrExpectation) {
		return revision, err
	}
	// It may be this relay's own, whose acknowledgement was lost.
	m, readErr := d.c.messages.LeaderLast(ctx, streams.StreamSnap, d.rootSubject())
	switch {
	case readErr != nil:
		return 0, readErr
	case string(m.Data) == string(body):
		return m.Seq, nil
	case m.Seq == last:
		return 0, err // replicated servers say so without a reason, too
	}
	return 0, errRootTaken
}

func (c *Dispatch) storePage(ctx context.Context, subject string, data []byte) error {
	body, err := eventlog.Pack(data)
	if err == nil && len(body) > eventlog.MaxCheckpoint {
		err = fmt.Errorf("%d bytes, at most %d are kept", len(body), eventlog.MaxCheckpoint)
	}
	if err == nil {
		_, err = c.messages.Publish(ctx, &nats.Msg{Subject: subject, Data: body})
	}
	if err != nil {
		return fmt.Errorf("nats/dispatch: save %s: %w", subject, err)
	}
	return nil
}

package dossier

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// family is a run with the branches of its fan-outs, which are runs of their
// own, and the branches of those.
type family map[run.ID]bool

// archive is evidence whose hash chains hold, decoded.
type archive struct {
	run  run.ID
	runs family
	home session.Key
	logs []*chain // in the order of the evidence
	byID map[session.ID]*chain
	// shelf returns a content that the rendering shows, or why it is not there.
	shelf func(blob.Digest) (data []byte, why string, err error)
}

// chain is one session's log.
type chain struct {
	key     session.Key
	entries []session.Entry
	events  [][]event
	ours    bool // the run, or a branch of it, wrote to it

	// The light fold: what the session is after each commit. states grows as
	// far as somebody asked; busy guards against references in a circle.
	states []state
	busy   bool
}

// event is an event with its data decoded.
type event struct {
	session.Event
	payload any
}

// state is what a session is right after a commit, without its rows.
type state struct {
	version   session.Version
	rows      int
	placement session.Placement
	opened    bool
	closed    bool
}

// open checks the hash chains and decodes every event.
func (e *Evidence) open() (*archive, error) {
	a := &archive{run: e.Run, home: e.Home, byID: map[session.ID]*chain{}}
	if len(e.Logs) == 0 || e.Logs[0].Session != e.Home.ID {
		return nil, fail(Missing, e.Home.ID, 0, "the evidence does not begin with the run's home session")
	}
	for _, l := range e.Logs {
		if a.byID[l.Session] != nil {
			return nil, fail(Foreign, l.Session, 0, "the session is there twice")
		}
		c := &chain{key: session.Key{Tenant: e.Home.Tenant, ID: l.Session}}
		if err := c.fill(l.Commits, e.Blobs); err != nil {
			return nil, err
		}
		a.logs = append(a.logs, c)
		a.byID[l.Session] = c
	}
	return a, nil
}

// fill links the commits into a chain.
func (c *chain) fill(raws []string, blobs map[blob.Digest][]byte) error {
	if len(raws) == 0 {
		return fail(Missing, c.key.ID, 1, "the session has no commits")
	}
	var at session.Position
	for i, raw := range raws {
		n := uint64(i + 1)
		commit, hash, err := session.Successor(c.key, at, []byte(raw))
		if err != nil {
			return c.broken(raws, i, commit, err)
		}
		for k := range commit.Events {
			ev := &commit.Events[k]
			if ev.Blob.Digest.IsZero() {
				continue
			}
			data, ok := blobs[ev.Blob.Digest]
			if !ok || blob.Sum(data) != ev.Blob.Digest || int64(len(data)) != ev.Blob.Size || !json.Valid(data) {
				return fail(Blob, c.key.ID, n, "the data of event %d, blob %s, is not in the evidence", k, ev.Blob.Digest.Short())
			}
			ev.Data = string(data)
		}
		at = session.Position{Seq: commit.Seq, Hash: hash}
		if err := c.add(session.Entry{Commit: commit, At: at, Raw: raw}); err != nil {
			return err
		}
	}
	return nil
}

// broken tells why commit i does not follow the one before.
func (c *chain) broken(raws []string, i int, got session.Commit, err error) error {
	n := uint64(i + 1)
	id := c.key.ID
	switch {
	case errors.Is(err, session.ErrTooOld):
		return fail(Release, id, n, "%v", err)
	case got.Seq == 0 || got.Key != c.key:
		return fail(Foreign, id, n, "%v", err)
	case got.Seq > n:
		for _, raw := range raws[i+1:] {
			if later, err := session.Decode([]byte(raw)); err == nil && later.Key == c.key && later.Seq == n {
				return fail(Reordered, id, n, "commit %d stands in its place", got.Seq)
			}
		}
		return fail(Missing, id, n, "commit %d follows commit %d", got.Seq, n-1)
	case got.Seq < n:
		return fail(Reordered, id, n, "commit %d stands in its place", got.Seq)
	case i > 0 && got.Prev != c.entries[i-1].At.Hash:
		return fail(Altered, id, n-1, "its bytes have the hash %s, commit %d follows one with the hash %s", c.entries[i-1].At.Hash, n, got.Prev)
	}
	return fail(Foreign, id, n, "%v", err)
}

// add takes one more commit.
func (c *chain) add(e session.Entry) error {
	n := e.Commit.Seq
	if n > 1 && e.Commit.Root != c.entries[0].Commit.Root {
		return fail(Inconsistent, c.key.ID, n, "it names another root than the commits before")
	}
	if n > 1 && e.Commit.Epoch < c.entries[n-2].Commit.Epoch {
		return fail(Inconsistent, c.key.ID, n, "its writer's epoch is lower than that of the commit before")
	}
	events := make([]event, len(e.Commit.Events))
	for i, ev := range e.Commit.Events {
		p, err := decode(ev)
		if err != nil {
			kind := Inconsistent
			if errors.Is(err, session.ErrTooOld) {
				kind = Release
			}
			return fail(kind, c.key.ID, n, "event %d: %v", i, err)
		}
		events[i] = event{ev, p}
	}
	c.entries = append(c.entries, e)
	c.events = append(c.events, events)
	return nil
}

// spread is a fan-out whose other branches begin.
type spread struct{ run.FanOut }

// decode reads an event's data. Events of namespaces that nobody folds have
// none.
func decode(e session.Event) (any, error) {
	switch e.Kind {
	case session.KindOpened:
		return session.DecodeOpening(e)
	case session.KindChunk:
		return session.DecodeChunk(e)
	case session.KindPlaced:
		return session.DecodePlacement(e)
	case session.KindJoined:
		return session.DecodeJoin(e)
	case session.KindRejected:
		return session.DecodeRejection(e)
	case session.KindClosed:
		return session.DecodeClosing(e)
	case session.KindArchived:
		return session.DecodeArchival(e)
	case session.KindRestored:
		return session.DecodeRestoration(e)
	case run.KindWriter:
		return run.Read[run.WriterOpened](e)
	case run.KindSubmitted:
		return run.Read[run.Submitted](e)
	case run.KindClaimed:
		return run.Read[run.Claimed](e)
	case run.KindReleased:
		return run.Read[run.Released](e)
	case run.KindReview:
		return run.Read[run.Review](e)
	case run.KindResolved:
		return run.Read[run.Resolved](e)
	case run.KindCancel:
		return run.Read[run.CancelRequested](e)
	case run.KindWarning:
		return run.Read[run.Warning](e)
	case run.KindEnded:
		return run.Read[run.Ended](e)
	case run.KindWaiting:
		return run.Read[run.RunWaiting](e)
	case run.KindReceived:
		return run.Read[run.SignalReceived](e)
	case run.KindFanOut:
		return run.Read[run.FanOut](e)
	case run.KindSpread:
		f, err := run.Read[run.FanOut](e)
		return spread{f}, err
	case run.KindWarmed:
		return run.Read[run.Warmed](e)
	case run.KindDisposed:
		return run.Read[run.BranchOutcomes](e)
	case run.KindQuarantined:
		return run.Read[run.Quarantined](e)
	case run.KindRebudgeted:
		return run.Read[run.Rebudgeted](e)
	case run.KindIntent:
		return run.Read[run.StepStarted](e)
	case run.KindDone, run.KindLate:
		return run.Read[run.StepCompleted](e)
	}
	for _, space := range []string{"session.", "run.", "step.", "writer."} {
		if strings.HasPrefix(e.Kind, space) {
			return nil, fmt.Errorf("unknown event %s: %w", e.Kind, session.ErrTooOld)
		}
	}
	return nil, nil
}

// runOf returns the run that an event tells of; "" for none.
func runOf(e event) run.ID {
	switch p := e.payload.(type) {
	case session.Opening:
		return run.ID(p.Run)
	case session.Chunk:
		if r := p.Origin().Run; r != "" {
			return run.ID(r)
		}
	case run.Submitted:
		return p.Task.Run
	case run.Claimed:
		return p.Run
	case run.Released:
		return p.Run
	case run.Review:
		return p.Run
	case run.Resolved:
		return p.Run
	case run.CancelRequested:
		return p.Run
	case run.Warning:
		return p.Run
	case run.Ended:
		return p.Run
	case run.RunWaiting:
		return p.Run
	case run.SignalReceived:
		return p.Run
	case run.FanOut:
		return p.Run
	case spread:
		return p.Run
	case run.Warmed:
		return p.Run
	case run.BranchOutcomes:
		return p.Run
	case run.Rebudgeted:
		return p.Run
	case run.StepStarted:
		return p.Run
	case run.StepCompleted:
		return p.Run
	}
	id, _, _ := strings.Cut(e.Batch, "/")
	return run.ID(id)
}

// concerns reports whether a commit of a log tells of one of the runs. A
// branch's end has no run of its own: it concerns the run that made the branch.
func (c *chain) concerns(n uint64, runs family) bool {
	for _, e := range c.events[n-1] {
		if runs[runOf(e)] {
			return true
		}
		switch e.payload.(type) {
		case session.Closing, run.Quarantined: // of the session, whatever runs in it
			if o, ok := c.opening(); ok && runs[run.ID(o.Run)] {
				return true
			}
		}
	}
	return false
}

// opening returns how the session came to be.
func (c *chain) opening() (session.Opening, bool) {
	for _, e := range c.events[0] {
		if o, ok := e.payload.(session.Opening); ok {
			return o, true
		}
	}
	return session.Opening{}, false
}

// last is the number of the last commit.
func (c *chain) last() uint64 { return uint64(len(c.entries)) }

// head is the hash of the last commit.
func (c *chain) head() session.Hash { return c.entries[len(c.entries)-1].At.Hash }

// claimed reports whether one of the runs wrote to the log.
func (c *chain) claimed(runs family) bool {
	return slices.ContainsFunc(c.events, func(evs []event) bool {
		return slices.ContainsFunc(evs, func(e event) bool {
			v, ok := e.payload.(run.Claimed)
			return ok && runs[v.Run]
		})
	})
}

// tellsOf reports whether a commit concerns one of the runs.
func (c *chain) tellsOf(runs family) bool {
	for n := uint64(1); n <= c.last(); n++ {
		if c.concerns(n, runs) {
			return true
		}
	}
	return false
}

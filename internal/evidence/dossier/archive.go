package dossier

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// family is a run and, recursively, the branches of its fan-outs, which are runs of their
// own.
type family map[run.ID]bool

// archive is decoded evidence with valid hash chains.
type archive struct {
	run  run.ID
	runs family
	home session.Key
	logs []*chain // in the order of the evidence
	byID map[session.ID]*chain
	// shelf returns a content that the rendering shows, or the reason why it is missing.
	shelf func(blob.Digest) (data []byte, why string, err error)
	// packed receives a tree before its files are read from the shelf; nil if files are
	// stored under their own digests.
	packed func(*manifest.Tree)
	// marks are the signatures, checked.
	marks []Signed
}

// chain is one session's log.
type chain struct {
	key     session.Key
	entries []commitlog.Entry
	facts   [][]journal.Fact // of each commit
	ours    bool             // the run, or a branch of it, wrote to it

	// states are the session's states after each commit, as computed by stateOf so far;
	// busy detects circular references.
	states []state
	busy   bool
}

// state is the state of a session right after a commit, without its rows.
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
	if e.Run != "" && (len(e.Logs) == 0 || e.Logs[0].Session != e.Home.ID) {
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
	var at commitlog.Position
	for i, raw := range raws {
		n := uint64(i + 1)
		commit, hash, err := commitlog.Successor(c.key, at, []byte(raw))
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
		at = commitlog.Position{Seq: commit.Seq, Hash: hash}
		if err := c.add(commitlog.Entry{Commit: commit, At: at, Raw: raw}); err != nil {
			return err
		}
	}
	return nil
}

// broken returns the reason why commit i does not follow the previous one.
func (c *chain) broken(raws []string, i int, got commitlog.Commit, err error) error {
	n := uint64(i + 1)
	id := c.key.ID
	switch {
	case errors.Is(err, session.ErrTooOld):
		return fail(Release, id, n, "%v", err)
	case got.Seq == 0 || got.Key != c.key:
		return fail(Foreign, id, n, "%v", err)
	case got.Seq > n:
		for _, raw := range raws[i+1:] {
			if later, err := commitlog.Decode([]byte(raw)); err == nil && later.Key == c.key && later.Seq == n {
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

// add appends a commit.
func (c *chain) add(e commitlog.Entry) error {
	n := e.Commit.Seq
	if n > 1 && e.Commit.Root != c.entries[0].Commit.Root {
		return fail(Inconsistent, c.key.ID, n, "it names another root than the commits before")
	}
	if n > 1 && e.Commit.Epoch < c.entries[n-2].Commit.Epoch {
		return fail(Inconsistent, c.key.ID, n, "its writer's epoch is lower than that of the commit before")
	}
	facts := journal.Facts(e.Commit)
	for i := range facts {
		if err := facts[i].Err; err != nil {
			kind := Inconsistent
			if errors.Is(err, session.ErrTooOld) {
				kind = Release
			}
			return fail(kind, c.key.ID, n, "event %d: %v", i, err)
		}
	}
	c.entries = append(c.entries, e)
	c.facts = append(c.facts, facts)
	return nil
}

// concerns reports whether a commit of a log is about one of the runs. A branch's end
// has no run of its own: it concerns the run that made the branch.
func (c *chain) concerns(n uint64, runs family) bool {
	for _, e := range c.facts[n-1] {
		if runs[e.Recorder()] {
			return true
		}
		switch e.What.(type) {
		case session.Closing, journal.Quarantined: // of the session itself
			if o, ok := c.opening(); ok && runs[run.ID(o.Run)] {
				return true
			}
		}
	}
	return false
}

// opening returns the opening of the session.
func (c *chain) opening() (session.Opening, bool) {
	for _, e := range c.facts[0] {
		if o, ok := e.What.(session.Opening); ok {
			return o, true
		}
	}
	return session.Opening{}, false
}

// last returns the number of the last commit.
func (c *chain) last() uint64 { return uint64(len(c.entries)) }

// head returns the hash of the last commit.
func (c *chain) head() session.Hash { return c.entries[len(c.entries)-1].At.Hash }

// claimed reports whether one of the runs wrote to the log.
func (c *chain) claimed(runs family) bool {
	return slices.ContainsFunc(c.facts, func(facts []journal.Fact) bool {
		return slices.ContainsFunc(facts, func(e journal.Fact) bool {
			_, ok := e.What.(journal.Claimed)
			return ok && runs[e.Run]
		})
	})
}

// concerned reports whether a commit concerns one of the runs.
func (c *chain) concerned(runs family) bool {
	for n := uint64(1); n <= c.last(); n++ {
		if c.concerns(n, runs) {
			return true
		}
	}
	return false
}

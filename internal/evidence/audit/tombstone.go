package audit

import (
	"fmt"
	"strconv"
)

// tombstone is the commit that archived a session, as the first commit on its subject.
// The commits before it are purged, and may be restored after it (FORMAT.md, commits).
type tombstone struct {
	seq   uint64
	token uint64
	hash  string
	file  string
	fresh bool   // the store had no message of the log before its import
	late  string // hash of a commit that restored the session too late
}

// purged reports whether some commits of a log are missing because of a purge.
func (l *log) purged() bool { return l.tombstone != nil && l.seq < l.tombstone.seq }

// tombstone processes a tombstone. The commits before it are unknown, so that it is
// checked against its schema alone.
func (a *audit) tombstone(l *log, m Message, c *commit, hash string) {
	a.report.Commits++
	g := &tombstone{seq: c.seq, token: m.Seq, hash: hash, fresh: len(m.Header[headerFresh]) > 0}
	l.tombstone, l.root = g, c.root
	says := func(expected, found string) func() Violation {
		return func() Violation {
			v := l.says(c.seq, "", expected, found)
			v.Seq = m.Seq
			return v
		}
	}
	// It was stored after the last purged commit, or as the first message of an
	// imported log.
	got := "no such header"
	if h := m.Header[headerExpected]; len(h) > 0 {
		got = h[0]
	}
	expected, err := strconv.ParseUint(got, 10, 64)
	a.check(OneWriter, err == nil && expected < m.Seq && g.fresh == (expected == 0), says(headerExpected+" of a message that is purged", got))
	a.check(Archives, c.events[0].kind == writerOpened && len(c.events) == 2, says("a tombstone of writer.opened and session.archived", fmt.Sprintf("%d events", len(c.events))))
	for i := range c.events {
		e := &c.events[i]
		a.report.Events++
		if e.blob != "" || !a.fits(l, c.seq, e) {
			continue
		}
		if e.kind == sessionArchived {
			if d, ok := read[archivedData](e.data); ok {
				g.file = d.File
			}
		}
	}
	a.check(Archives, g.file != "", says("the name of an archive", "none"))
	a.tenants(l, m, c)
}

// late reports whether a commit restores a session whose log was purged at the same
// time. It follows the tombstone, and every reader of the log skips it. A relay that
// read the log before the purge may have published its lineage.
func (l *log) late(c *commit, hash string) bool {
	late := l.seq == 0 && l.tombstone != nil && c.seq == l.tombstone.seq+1 && c.prev == l.tombstone.hash &&
		len(c.events) == 2 && c.events[0].kind == writerOpened && c.events[1].kind == sessionRestored
	if late {
		l.tombstone.late = hash
	}
	return late
}

const (
	headerRestored = "Rath-Restored"
	headerFresh    = "Rath-Fresh"
)

// broughtBack checks a commit of a log that begins with a tombstone.
func (a *audit) broughtBack(l *log, m Message, c *commit) {
	h := m.Header[headerRestored]
	if l.tombstone == nil || c.seq > l.tombstone.seq {
		a.check(Archives, len(h) == 0, func() Violation {
			return l.says(c.seq, "", "no header "+headerRestored+" on a commit that was not brought back", fmt.Sprint(h))
		})
		return
	}
	a.check(Archives, len(h) == 1 && h[0] == strconv.FormatUint(l.tombstone.seq, 10), func() Violation {
		return l.says(c.seq, "", fmt.Sprintf("header %s %d on a commit that was brought back", headerRestored, l.tombstone.seq), fmt.Sprint(h))
	})
	if c.seq == l.tombstone.seq {
		a.check(Archives, l.hash == l.tombstone.hash, func() Violation {
			return l.says(c.seq, "", fmt.Sprintf("the commit of the tombstone, %.8s", l.tombstone.hash), fmt.Sprintf("%.8s", l.hash))
		})
	}
	if len(m.Header[headerFresh]) == 0 {
		// Its records were published earlier, about the purged messages.
		for i := len(l.codes) - len(c.events); i < len(l.codes); i++ {
			l.codes[i] &^= codeOwed
		}
	}
}

// covers reports whether a record is of a commit that is or was purged, or of the late
// commit.
func (g *tombstone) covers(l *log, r *recordData) bool {
	return r.Commit == g.seq+1 && r.Hash == g.late ||
		r.Commit <= g.seq && r.Seq <= g.token && r.Root == l.root && (r.Commit != g.seq || r.Hash == g.hash)
}

func (f *folding) archived(_ *event, d archivedData) {
	f.a.check(Archives, f.i == len(f.c.events)-1, f.says("", "session.archived as the last event of its commit", fmt.Sprintf("event %d", f.i)))
	f.a.check(Archives, d.File != "", f.says("", "the name of an archive", "none"))
	for id, r := range f.l.runs {
		f.a.check(Archives, !r.home || terminal(r.state), f.says(id, "no open run in a session that is archived", "it "+r.state))
	}
	f.l.fence = d.File
}

func (f *folding) restored(*event) {
	f.a.check(Archives, f.l.fence != "", f.says("", "session.archived before session.restored", "none"))
	f.l.fence = ""
}

// incomplete reports whether a log is purged, or archived with a purged log in the same
// archive: references between them can no longer be checked.
func (a *audit) incomplete(l *log) bool {
	return l.purged() || l.fence != "" && a.purgedArchives[l.fence]
}

// findPurged finds the archives of purged logs.
func (a *audit) findPurged() {
	a.purgedArchives = map[string]bool{}
	for _, l := range a.logs {
		if l.purged() {
			a.purgedArchives[l.tombstone.file] = true
		}
	}
}

// purgedRun reports whether a run was, or may have been, in a purged log: its own, or the
// one that its alias names.
func (a *audit) purgedRun(run key) bool {
	home := key{run.tenant, a.aliases[run].Session}
	if g := a.runs[run]; g != nil && g.home != nil {
		home = g.home.key
	}
	for _, k := range []key{home, run} {
		if l := a.logs[k]; l != nil && l.purged() {
			return true
		}
	}
	return false
}

// purgedLink checks a reference to a purged commit; ok is false for other references.
func (a *audit) purgedLink(l *log, c claimOf) (ok bool) {
	if l == nil || !l.purged() || c.link.Seq > l.tombstone.seq {
		return false
	}
	a.check(Archives, a.incomplete(c.from), func() Violation {
		return c.from.says(c.seq, "", fmt.Sprintf("commit %d of %s, %s", c.link.Seq, l.id, c.what), "it is purged, and this session is not archived")
	})
	return true
}

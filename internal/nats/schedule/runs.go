package schedule

import (
	"fmt"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/session"
)

// Runs are the open runs of any partitions: a fold for readers that do not schedule. The
// zero value is ready to use. It is not safe for concurrent use.
type Runs struct{ sessions map[session.Key]*openSession }

// Fold folds the next commit.
func (r *Runs) Fold(e commitlog.Entry) {
	k := e.Commit.Key
	o := r.sessions[k]
	facts := journal.Facts(e.Commit)
	for i := range facts {
		if o == nil && opens(&facts[i]) {
			o = openedBy(e, facts)
			if r.sessions == nil {
				r.sessions = map[session.Key]*openSession{}
			}
			r.sessions[k] = o
		}
		if o != nil {
			o.fold(k, &facts[i])
		}
	}
	if o != nil && o.done() {
		delete(r.sessions, k)
	}
}

// Open describes the open part of a session, "" if there is none.
func (r *Runs) Open(k session.Key) string {
	o := r.sessions[k]
	switch {
	case o == nil:
		return ""
	case len(o.Runs) > 0:
		return fmt.Sprintf("run %s is %s in session %s", o.Runs[0].ID, o.Runs[0].State, k.ID)
	case o.Limited > 0:
		return fmt.Sprintf("session %s is the log of a key that %d runs wait for or hold", k.ID, o.Limited)
	case o.Quarantined:
		return fmt.Sprintf("session %s is quarantined", k.ID)
	}
	return ""
}

// opens reports whether a fact opens a session without open work.
func opens(f *journal.Fact) bool {
	switch f.What.(type) {
	case journal.Submitted, journal.Quarantined:
		return true
	}
	work, _ := journal.KeyWork(f.What)
	return work.Open > 0
}

func openedBy(e commitlog.Entry, facts []journal.Fact) *openSession {
	return &openSession{Tenant: e.Commit.Tenant, Session: e.Commit.ID, Writer: writerOf(facts)}
}

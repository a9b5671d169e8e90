package journal

import (
	"slices"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// CacheWarmed records that the provider's cache holds the prefix that the branches
// share, so that the other branches may start. The batch of the first answer of a model
// in a branch with Branch.WarmsCache contains it, in the log of any session of the run.
// It is also recorded with each wait before that answer, including a wait for an
// operator, because the branch warms no cache while it waits. There may therefore be
// several.
type CacheWarmed struct {
	Parent Ancestor `json:"parent"` // the run that is notified
	Run    run.ID   `json:"run"`
}

// signal returns the signal to the parent.
func (v CacheWarmed) signal(t session.Tenant) *Signal {
	return &Signal{
		To: session.Key{Tenant: t, ID: v.Parent.Session}, Run: v.Parent.Run,
		Received: &SignalReceived{Kind: cacheWarm, Path: v.Parent.Path, Run: v.Parent.Run},
	}
}

// releaseBranches returns the event that starts the other branches of the held fan-out,
// if v is the awaited signal: the first branch has its first answer, waits itself, or
// has ended. It returns no event once the join is decided, because the branches are of
// no use then.
func (r *Record) releaseBranches(v SignalReceived) []session.Event {
	if r.warming == nil || r.State != run.Waiting || v.Path != GatherPath(r.warming.Path) {
		return nil
	}
	inbox := r.inbox
	if v.Kind == Report {
		if v.Branch.Link.ID != r.warming.Branches[0].Session {
			return nil
		}
		inbox = append(slices.Clone(inbox), v)
	}
	if !slices.ContainsFunc(r.Suspended.For, func(w Wait) bool { return w.Path == v.Path && !w.Came(inbox) }) {
		return nil
	}
	return []session.Event{event(KindBranchesReleased, *r.warming)}
}

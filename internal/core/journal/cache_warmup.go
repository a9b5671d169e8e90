package journal

import (
	"slices"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// CacheWarmed records, in the batch of the first answer of a model in a branch with
// Branch.WarmsCache, that the provider's cache now holds the beginning that the
// branches share, so that the others may begin. It may lie in the log of any
// session of the run. It is also recorded together with each wait before that
// answer, also for a person: the branch warms nothing as long as it waits. So there may be several.
type CacheWarmed struct {
	Parent Ancestor `json:"parent"` // who is told
	Run    run.ID   `json:"run"`
}

// signal returns what tells the parent.
func (v CacheWarmed) signal(t session.Tenant) *Signal {
	return &Signal{
		To: session.Key{Tenant: t, ID: v.Parent.Session}, Run: v.Parent.Run,
		Received: &SignalReceived{Kind: cacheWarm, Path: v.Parent.Path, Run: v.Parent.Run},
	}
}

// releaseBranches returns the event that lets the other branches of the held fan-out
// begin, if v is what they wait for: the first branch has its first answer,
// waits for something itself, or has ended. There is none once the join is decided: they are of no use then.
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

package translate

import (
	"encoding/json"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// RunInfo returns the wire form of a run in the lineage.
func RunInfo(r lineage.Run) messages.RunInfo {
	out := messages.RunInfo{
		Run: r.ID, State: r.State, Workflow: r.Workflow, Revision: r.Revision, Asked: r.Asked, Session: r.Home.ID, Root: r.Root, Attempt: r.Attempt, Node: r.Node,
		Behind: r.Behind, By: r.By, Via: r.Via, Says: r.Says, Cancelled: r.Cancelled, Code: r.Code, Reason: r.Reason, Result: r.Result, Steps: r.Steps,
		Sessions: r.Sessions, Usage: r.Usage, Warnings: r.Warnings, Branch: r.Branch, BranchOf: r.BranchOf, StartedBy: r.StartedBy, Starts: r.Starts, Waits: r.Waits, Quarantine: r.Quarantine, Tags: r.Tags,
	}
	if json.Valid([]byte(r.Status)) { // an empty one is not
		out.Status = json.RawMessage(r.Status)
	}
	if !r.Due.IsZero() {
		out.Due = r.Due.UnixMilli()
	}
	if !r.Submitted.IsZero() {
		out.Submitted = r.Submitted.UnixMilli()
	}
	if r.State == run.Queued {
		out.Queued = r.Queued.UnixMilli()
	}
	if !r.Started.IsZero() {
		out.Started = r.Started.UnixMilli()
	}
	if !r.Ended.IsZero() {
		out.Ended = r.Ended.UnixMilli()
	}
	return out
}

// ResultOf makes the result of a run from the event that ended it in the log
// of its home session.
func ResultOf(home session.ID, e journal.Ended, at time.Time) messages.Result {
	r := messages.Result{
		Schema: messages.Schema, Run: e.Run, State: e.State, Workflow: e.Workflow, Session: home, Output: e.Output,
		Finish: e.Finish, Word: e.Word, Code: e.Code, Error: e.Error, Attempt: e.Attempt, Usage: e.Usage, Lost: e.Lost, EndedMS: at.UnixMilli(),
	}
	if e.Result != nil {
		r.Session, r.Version = e.Result.ID, e.Result.Version
	}
	if e.State == run.Succeeded && e.Version > 0 { // including the chunks committed together with the end
		r.Session, r.Version = home, e.Version
	}
	if !e.Head.IsZero() {
		r.Workspace = e.Head.String()
	}
	return r
}

// Results returns the results of the runs that a commit with these facts ended, with
// the commit itself as their chain. A session that is not the run's home also records
// the end of the run when it releases the run: that is no result.
func Results(e commitlog.Entry, facts []journal.Fact) (out []messages.Result) {
	for _, f := range facts {
		if v, ok := f.What.(journal.Ended); ok && f.State != "" {
			r := ResultOf(e.Commit.ID, v, f.Time)
			r.Chain = &messages.Chain{Hash: e.At.Hash.String(), Seq: e.Commit.Seq, Session: e.Commit.ID}
			out = append(out, r)
		}
	}
	return out
}

// Settle adds to a result the usage in the facts of commits after the end of the run.
func Settle(r *messages.Result, facts []journal.Fact) {
	for _, s := range Settlements(facts) {
		if s.Run == r.Run && s.Settled > r.Settled {
			r.Usage, r.Lost, r.Settled = s.Usage, s.Lost, s.Settled
		}
	}
}

// Settlements returns the corrected usage of the runs that had ended before a commit
// with these facts, if the commit reports it: only Run, Usage, Lost and Settled are
// set.
func Settlements(facts []journal.Fact) (out []messages.Result) {
	for _, f := range facts {
		if v, ok := f.What.(journal.Settled); ok && v.N > 0 {
			out = append(out, messages.Result{Run: v.Run, Usage: v.Total.Usage, Lost: v.Total.Lost, Settled: v.N})
		}
	}
	return out
}

// BranchOf returns the wire form of a session in the lineage.
func BranchOf(s lineage.Session) messages.GraphSession {
	return messages.GraphSession{
		Session: s.Key.ID, Version: s.Version, Root: s.Root, Via: s.Via, Name: s.Name, Parents: s.Parents, Head: s.Head,
		Disposition: s.Disposition, Reason: s.Reason, By: s.By, Usage: s.Usage, Opened: s.Opened.UnixMilli(), Last: s.Last.UnixMilli(), Runs: s.Runs,
	}
}

package events

import (
	"github.com/rathcluster/rath/messages"
)

// Event is one event of a stream.
type Event = messages.StreamEvent

// MaxOf is the maximum number of events of one record.
const MaxOf = 3

// Of returns the events of a record, at least one and at most MaxOf.
func Of(r *messages.Record) []Event {
	e := base(r)
	e.Kind = kindOf(r)
	out := append(make([]Event, 0, MaxOf), e)
	if r.HeadFrom != "" && r.Head != "" && r.HeadFrom != r.Head {
		out = append(out, Event{
			Kind: messages.EventFilesChanged, Place: e.Place, Record: e.Record, Run: e.Run, Session: e.Session, Root: e.Root, Commit: e.Commit,
			Step: e.Step, Attempt: e.Attempt, Agent: e.Agent, Tool: e.Tool, Call: e.Call, Time: e.Time, HeadBefore: r.HeadFrom, HeadAfter: r.Head,
		})
	}
	if kind := branchKind(r); kind != "" && kind != e.Kind {
		out = append(out, Event{
			Kind: kind, Place: e.Place, Record: e.Record, Run: e.Run, Session: e.Session, Root: e.Root, Commit: e.Commit, Step: e.Step, Attempt: e.Attempt,
			State: e.State, Reason: e.Reason, Time: e.Time, Text: e.Text, Branches: r.Branches, BranchOf: r.BranchOf, Parents: r.Parents, Ends: r.Ends,
		})
	}
	return out
}

// base returns an event with the fields of a record.
func base(r *messages.Record) Event {
	return Event{
		Place:  &messages.EventPlace{Partition: r.Partition, Seq: r.Seq, K: r.K},
		Record: r.Kind, Run: r.Run, Session: r.Session, Root: r.Root, Commit: r.Commit, Workflow: r.Workflow, Step: r.Step, Attempt: r.Attempt,
		State: r.State, Code: r.Code, Failed: r.Failure, Reason: r.Reason, Time: r.Time,
		Agent: r.Agent, Tool: r.Tool, Call: r.Call, Calls: r.Calls, Model: r.Model, Name: r.Name, Role: r.Role, By: r.By, Via: r.Via, Node: r.Node,
		Text: r.Summary, Usage: r.Usage, Cost: r.Cost, Elapsed: r.Elapsed, Finish: r.Finish,
		Waits: r.Waits, Due: r.Due, Branches: r.Branches, BranchOf: r.BranchOf, Parents: r.Parents, Ends: r.Ends,
		HeadBefore: r.HeadFrom, HeadAfter: r.Head, Result: r.Result,
	}
}

// kindOf returns the kind of a record's first event.
func kindOf(r *messages.Record) messages.EventKind {
	switch r.Kind {
	case messages.KindSubmitted, messages.KindQueued:
		return messages.EventRunQueued
	case messages.KindClaimed:
		if r.Home != "" {
			return messages.EventRunChanged
		}
		return messages.EventRunStarted
	case messages.KindEnded:
		return messages.EventRunEnded
	case messages.KindReview:
		return messages.EventQuestionAsked
	case messages.KindWaiting:
		if r.Asks() != "" {
			return messages.EventQuestionAsked
		}
		return messages.EventRunChanged
	case messages.KindAnswered, messages.KindResolved:
		return messages.EventQuestionAnswered
	case messages.KindIntent:
		return messages.EventStepStarted
	}
	if IsStep(r) {
		return messages.EventStepDone
	}
	if kind := branchKind(r); kind != "" {
		return kind
	}
	switch r.Kind {
	case messages.KindClaimed, messages.KindReleased, messages.KindCancel, messages.KindWarning, messages.KindStatus, messages.KindWaiting, messages.KindMessage, messages.KindDue,
		messages.KindSpread, messages.KindLate, messages.KindSettled, messages.KindQuarantined, messages.KindReadmitted, messages.KindRebudgeted:
		return messages.EventRunChanged
	}
	return messages.EventSessionChanged
}

// IsStep reports whether a record is the outcome of a step. A late outcome is none: the
// step has another one.
func IsStep(r *messages.Record) bool {
	if r.Step == "" {
		return false
	}
	switch r.Kind {
	case messages.KindModel, messages.KindTool, messages.KindDid, messages.KindBranched, messages.KindRecalled, messages.KindRemembered,
		messages.KindCompressed, messages.KindSelected, messages.KindFannedOut, messages.KindGathered, messages.KindAwaited,
		messages.KindMerged, messages.KindAdopted, messages.KindRejected, messages.KindPlaced:
		return true
	}
	return false
}

// branchKind returns the kind of the event about branches that a record has, "" for none.
func branchKind(r *messages.Record) messages.EventKind {
	switch r.Kind {
	case messages.KindFannedOut, messages.KindForked, messages.KindDetached:
		return messages.EventBranchStarted
	case messages.KindReported, messages.KindDisposed, messages.KindAdopted, messages.KindMerged, messages.KindRejected:
		return messages.EventBranchEnded
	}
	return ""
}

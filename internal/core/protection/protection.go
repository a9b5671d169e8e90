// Package protection names the checks that keep a fleet from losing work or doing it
// twice, so that a test can disable each of them: a check whose absence no test notices
// is useless. A program that is linked without one
//
//	go build -ldflags "-X github.com/rathcluster/rath/internal/core/protection.without=append_cas"
//
// reports it when it starts. Its only use is to show that the auditor finds the
// resulting damage. A running program cannot disable a check.
package protection

import (
	"maps"
	"slices"
)

// without is the protection that the program is linked without; "" is none.
var without string

// The protections. They do not change while a program runs.
var (
	// AppendCAS: a commit is appended only after the commit that its writer saw last.
	AppendCAS = without != "append_cas"
	// AttemptFence: a superseded attempt records only evidence.
	AttemptFence = without != "attempt_fence"
	// ClaimBeforeRead: a worker claims a log before it reads its journal, so that no
	// other worker adds to it afterwards.
	ClaimBeforeRead = without != "claim_before_read"
	// DispatchSeen: the log decides about a dispatch: it rejects a claim that finds
	// another attempt than the relay saw.
	DispatchSeen = without != "dispatch_seen"
	// EventCursor: a wait receives no event that its run has received before.
	EventCursor = without != "event_cursor"
	// IntentExpiry: a call that must not happen twice starts only while its intent is
	// fresh.
	IntentExpiry = without != "intent_expiry"
	// LimitHolders: a limit by key grants no more runs than may hold it.
	LimitHolders = without != "limit_holders"
	// OpenSetTail: a relay that takes over a partition reads the messages after its
	// stored open set.
	OpenSetTail = without != "openset_tail"
	// PersistBeforeReply: a request is answered after its commit is durable.
	PersistBeforeReply = without != "persist_before_reply"
	// Round: a server's message leaves it only after the round that syncs the data
	// stored before it.
	Round = without != "round"
	// WakeNumbers: a waiting run is claimed only after its waits are satisfied.
	WakeNumbers = without != "wake_numbers"
)

// on are the protections by their names.
var on = map[string]bool{
	"append_cas":           AppendCAS,
	"attempt_fence":        AttemptFence,
	"claim_before_read":    ClaimBeforeRead,
	"dispatch_seen":        DispatchSeen,
	"event_cursor":         EventCursor,
	"intent_expiry":        IntentExpiry,
	"limit_holders":        LimitHolders,
	"openset_tail":         OpenSetTail,
	"persist_before_reply": PersistBeforeReply,
	"round":                Round,
	"wake_numbers":         WakeNumbers,
}

// Names returns the names of all protections, sorted.
func Names() []string { return slices.Sorted(maps.Keys(on)) }

// Off returns the names of the checks that this program is linked without.
func Off() []string {
	return slices.DeleteFunc(Names(), func(name string) bool { return on[name] })
}

func init() {
	if _, known := on[without]; without != "" && !known {
		panic("protection: there is no protection " + without)
	}
}

// Package protection names the checks that keep a fleet from losing work or
// doing it twice, so that each can be left out for a test: a check whose absence
// nothing notices may as well not be there. A program that is linked without one
//
//	go build -ldflags "-X github.com/rathcluster/rath/internal/core/protection.without=append_cas"
//
// says so when it starts, and is good for nothing but showing that the auditor
// finds what then goes wrong. A program that runs cannot leave one out.
package protection

import (
	"maps"
	"slices"
)

// without is the protection that the program is linked without; "" is none.
var without string

// The protections. They do not change while a program runs.
var (
	// AppendCAS: a commit is appended only after the one that its writer saw last.
	AppendCAS = without != "append_cas"
	// AttemptFence: an attempt that a later one superseded records nothing but evidence.
	AttemptFence = without != "attempt_fence"
	// ClaimBeforeRead: a worker claims a log before it reads its journal, so that no
	// other worker adds to it afterwards.
	ClaimBeforeRead = without != "claim_before_read"
	// DispatchSeen: a dispatch is decided by the log: a claim that finds another attempt
	// than the relay saw is refused.
	DispatchSeen = without != "dispatch_seen"
	// IntentExpiry: a call that must not happen twice starts only while its intent is
	// fresh.
	IntentExpiry = without != "intent_expiry"
	// OpenSetTail: a relay that takes a partition reads what came after its open set was
	// stored.
	OpenSetTail = without != "openset_tail"
	// PersistBeforeReply: a request is answered after its commit is durable.
	PersistBeforeReply = without != "persist_before_reply"
	// Round: what a server says leaves it after the round that syncs what it had stored.
	Round = without != "round"
	// WakeNumbers: a run that waits is claimed only after what it waits for has come.
	WakeNumbers = without != "wake_numbers"
)

// on are the protections by their names.
var on = map[string]bool{
	"append_cas":           AppendCAS,
	"attempt_fence":        AttemptFence,
	"claim_before_read":    ClaimBeforeRead,
	"dispatch_seen":        DispatchSeen,
	"intent_expiry":        IntentExpiry,
	"openset_tail":         OpenSetTail,
	"persist_before_reply": PersistBeforeReply,
	"round":                Round,
	"wake_numbers":         WakeNumbers,
}

// Names returns the names of all protections, sorted.
func Names() []string { return slices.Sorted(maps.Keys(on)) }

// Off returns the names of those that this program is linked without.
func Off() []string {
	return slices.DeleteFunc(Names(), func(name string) bool { return on[name] })
}

func init() {
	if _, known := on[without]; without != "" && !known {
		panic("protection: there is no protection " + without)
	}
}

// Package protection names the checks that keep a fleet from losing work or
// doing it twice, so that each can be switched off for a test: a check whose
// absence nothing notices may as well not be there. A build with the tag
// off_<name> leaves one of them out; such a program says so when it starts and
// is good for nothing but showing that the auditor finds what then goes wrong.
//
// The constants are true in every other build, and the compiler drops the
// branches that they guard.
package protection

// Off names the protections that this build leaves out.
func Off() []string {
	var off []string
	for _, p := range []struct {
		name string
		on   bool
	}{
		{"append_cas", AppendCAS},
		{"attempt_fence", AttemptFence},
		{"claim_before_read", ClaimBeforeRead},
		{"dispatch_seen", DispatchSeen},
		{"intent_expiry", IntentExpiry},
		{"openset_tail", OpenSetTail},
		{"persist_before_reply", PersistBeforeReply},
		{"round", Round},
		{"wake_numbers", WakeNumbers},
	} {
		if !p.on {
			off = append(off, p.name)
		}
	}
	return off
}

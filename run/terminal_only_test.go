package run

import (
	"testing"

	"github.com/rathcluster/rath/session"
)

func TestVital(t *testing.T) {
	done := func(d StepCompleted) session.Event { return event(KindDone, d) }
	chunk := session.ChunkEvent(session.UserText("x"))
	for name, tc := range map[string]struct {
		events []session.Event
		want   bool
	}{
		"nothing":                      {nil, false},
		"a new run":                    {[]session.Event{event(KindSubmitted, Submitted{}), event(KindClaimed, Claimed{})}, false},
		"a claim":                      {[]session.Event{event(KindWriter, WriterOpened{}), event(KindClaimed, Claimed{})}, false},
		"an answer of a model":         {[]session.Event{chunk, done(StepCompleted{Kind: StepModel, Row: true})}, false},
		"an intent":                    {[]session.Event{event(KindIntent, StepStarted{})}, false},
		"a fan-out":                    {[]session.Event{event(KindFanOut, FanOut{}), {Kind: KindWaiting}}, false},
		"a warning":                    {[]session.Event{event(KindWarning, Warning{})}, false},
		"a tool that may run again":    {[]session.Event{done(StepCompleted{Kind: StepTool, Effect: "idempotent"}), chunk}, false},
		"a tool that must not":         {[]session.Event{done(StepCompleted{Kind: StepTool, Effect: "non_idempotent"}), chunk}, true},
		"an outcome that came late":    {[]session.Event{event(KindLate, StepCompleted{Kind: StepModel})}, true},
		"an end with what goes before": {[]session.Event{chunk, event(KindEnded, Ended{})}, true},
		"a cancel":                     {[]session.Event{event(KindWriter, WriterOpened{}), event(KindCancel, CancelRequested{})}, true},
		"an answer of a person":        {[]session.Event{event(KindReceived, SignalReceived{})}, true},
		"a decision":                   {[]session.Event{event(KindResolved, Resolved{})}, true},
		"a run given back":             {[]session.Event{event(KindReleased, Released{})}, true},
		"a run that waits for people":  {[]session.Event{event(KindReview, Review{})}, true},
		"a disposition":                {[]session.Event{event(KindDisposed, BranchOutcomes{})}, true},
		"a rejected branch":            {[]session.Event{done(StepCompleted{Kind: StepReject}), {Kind: session.KindRejected}}, true},
		"a branch that is closed":      {[]session.Event{session.ClosedEvent(session.Closing{})}, true},
		"an archive's fence":           {[]session.Event{{Kind: session.KindArchived}}, true},
		"a fence that is lifted":       {[]session.Event{{Kind: session.KindRestored}}, true},
	} {
		if got := IsTerminalOnly(tc.events); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

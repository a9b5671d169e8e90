package translate

import (
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Signal translates a control request of a user into the signal for a run with the
// given home session. The request must have passed messages.Control.Check.
func Signal(c messages.Control, home session.Key, user string, id run.ID, verb string) (journal.Signal, error) {
	if err := c.Check(verb); err != nil {
		return journal.Signal{}, err
	}
	s := journal.Signal{To: home, Run: id}
	switch verb {
	case messages.VerbCancel:
		s.Cancel = &journal.CancelRequested{By: user, Says: c.By, Force: c.Force, ID: c.ID, Reason: c.Reason, Run: id}
	case messages.VerbResolve:
		s.Resolve = &journal.Resolved{By: user, Says: c.By, Decision: c.Decision, ID: c.ID, Reason: c.Reason, Run: id, Value: string(c.Value)}
	case messages.VerbApprove, messages.VerbReject, messages.VerbRespond:
		s.Received = &journal.SignalReceived{By: user, Says: c.By, ID: c.ID, Kind: verb, Path: c.Step, Reason: c.Reason, Run: id, Value: string(c.Value)}
	case messages.VerbQuarantine, messages.VerbRelease:
		s.Quarantine = &journal.Quarantined{By: user, Says: c.By, ID: c.ID, Reason: c.Reason, Released: verb == messages.VerbRelease}
	case messages.VerbRebudget:
		b := c.Budget
		s.Rebudget = &journal.Rebudgeted{By: user, Says: c.By, ID: c.ID, Reason: c.Reason, Run: id, Budget: run.Budget{
			MicroUSD: b.MicroUSD, Steps: b.Steps, Time: time.Duration(b.TimeMS) * time.Millisecond, Tokens: b.Tokens,
		}}
	case messages.VerbPublish: // To.ID is the log of the event
		s.Run, s.Event = "", &journal.EventSignal{Published: &journal.Published{By: user, ID: c.ID, Key: c.Key, Name: c.Event, Says: c.By, Value: string(c.Value)}}
	case messages.VerbMessage, messages.VerbSessionMessage:
		s.Received = &journal.SignalReceived{By: user, Says: c.By, ID: c.ID, Interrupt: c.Interrupt, Kind: journal.Message, Run: id, Text: strings.ToValidUTF8(c.Text, "\uFFFD")}
		if verb == messages.VerbSessionMessage { // the id is a session's
			s.To.ID, s.Run, s.Received.Run = session.ID(id), "", ""
		}
	}
	return s, nil
}

package inprocess

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// announceWait starts the answering of a question.
func (t *tree) announceWait(k session.Key, s journal.RunWaiting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.d.Answer != nil && !t.over {
		t.begin(func() { t.answerWaits(k, s) })
	}
}

// answerWaits calls Driver.Answer for the questions of a waiting run of the tree. A
// commit of a former process may hold a question that is decided.
func (t *tree) answerWaits(k session.Key, v journal.RunWaiting) {
	for _, w := range v.For {
		switch w.Kind {
		case run.WaitApproval, run.WaitResponse, run.WaitMessage, run.WaitEvent:
		default:
			continue // the clock, or the branches, end it
		}
		q := run.Question{Session: k, Run: v.Run, Step: w.Path, Kind: w.Kind, Key: w.Key, Name: w.Name, Title: w.Title, Detail: w.Detail, Schema: w.Schema}
		if err := t.answer(k, q); err != nil && t.ctx.Err() == nil {
			t.fail(fmt.Errorf("flow: %v: %w", q, err))
			return
		}
	}
}

// answer gets the answer to one question, and sends it to the run.
func (t *tree) answer(k session.Key, q run.Question) error {
	t.answering.Lock()
	defer t.answering.Unlock()
	g, err := t.rt.Values.Recorded(t.ctx, k, q.Run)
	if err != nil {
		return err
	}
	if r := g.Record; r.State != run.Waiting || !slices.ContainsFunc(r.Suspended.For, func(w journal.Wait) bool {
		return w.Path == q.Step && !w.Came(r.Inbox())
	}) {
		return nil
	}
	for tries := 1; ; tries++ {
		v, err := t.d.Answer(t.ctx, q)
		if err != nil || v == nil {
			return err
		}
		if q.Kind == run.WaitEvent {
			return t.publish(q, v)
		}
		s, err := received(q.Kind, v)
		if err != nil {
			return err
		}
		s.Path, s.ID = q.Step, "answer-"+string(q.Step)
		err = t.rt.Store.Apply(t.ctx, journal.Signal{To: k, Run: q.Run, Received: s})
		switch {
		case errors.Is(err, run.ErrState):
			return nil // it has been decided
		case !errors.Is(err, run.ErrMalformed) || tries == maxAnswers:
			return err
		}
		q.Refused = err.Error()
	}
}

// publish publishes the event that a run awaits.
func (t *tree) publish(q run.Question, v any) error {
	value, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("the value of the event is nothing that JSON can hold: %w", err)
	}
	log, err := journal.EventLog(t.rt.Mint, q.Session.Tenant, q.Name, q.Key)
	if err != nil {
		return err
	}
	return t.rt.Store.Apply(t.ctx, journal.Signal{To: session.Key{Tenant: q.Session.Tenant, ID: log}, Event: &journal.EventSignal{
		Published: &journal.Published{ID: string(q.Run) + "/" + string(q.Step), Key: q.Key, Name: q.Name, Value: string(value)},
	}})
}

// maxAnswers bounds the calls of Driver.Answer for one question.
const maxAnswers = 8

// received returns the answer to a question of a kind as a signal to the run.
func received(kind string, v any) (*journal.SignalReceived, error) {
	switch kind {
	case run.WaitApproval:
		a, ok := v.(flow.Approval)
		if !ok {
			return nil, fmt.Errorf("the answer to an approval is a flow.Approval, not a %T", v)
		}
		s := &journal.SignalReceived{Kind: journal.Refuse, By: a.By, Says: a.Says, Reason: a.Reason, Value: string(a.Value)}
		if a.Approved {
			s.Kind = journal.Approve
		}
		return s, nil
	case run.WaitMessage:
		text, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("the answer to a message is a string, not a %T", v)
		}
		return &journal.SignalReceived{Kind: journal.Message, Text: text}, nil
	}
	value, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("the answer is nothing that JSON can hold: %w", err)
	}
	return &journal.SignalReceived{Kind: journal.Respond, Value: string(value)}, nil
}

package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/form"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/question"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Await implements flow.Await. The session's writer rejects answers that do not match the
// schema of the question. An answer that T itself does not decode is recorded, and the
// question is asked again at the step's path with "again" and a number.
func (p *place) Await(ctx context.Context, w journal.Wait, timeout time.Duration, out any) error {
	if w.Kind == run.WaitRun {
		end, err := awaitRun(ctx, p, run.ID(w.Name), timeout)
		*out.(*flow.RunEnd) = end
		return err
	}
	st, err := p.begin(ctx, journal.StepAwait, w.Name, session.Session{}, false, "", w.Kind)
	if err != nil {
		return err
	}
	defer st.end()
	first, detail := st.asked, w.Detail
	for again := 0; ; again++ {
		d, err := st.await(w, timeout, out)
		if d.Code != run.CodeMalformed || !errors.Is(err, run.ErrMalformed) {
			return err
		}
		asked := first
		asked.Path = first.Path.Child("again").Index(again)
		if st, err = st.ex.substep(st.ctx, st.log, session.Session{}, asked); err != nil {
			return st.fail(err)
		}
		w.Detail = strings.TrimSpace(fmt.Sprintf("The answer before was not taken: %s\n%s", question.OneLine(d.Error, 2*question.MaxShown), detail))
	}
}

// await returns the recorded outcome of a question and its error, and decodes the answer into
// out.
func (st *step) await(w journal.Wait, timeout time.Duration, out any) (d journal.StepCompleted, err error) {
	err = st.make(func() error {
		d = st.record.StepCompleted
		return decode(d, out)
	}, func() (journal.StepCompleted, error) {
		w.Path = st.asked.Path
		if w.Kind == run.WaitResponse {
			if schema, err := form.Of(reflect.TypeOf(out).Elem()); err == nil && len(schema) <= form.MaxSchema {
				w.Schema = string(schema)
			}
		}
		inbox, err := st.ex.signals.wait(st.ctx, []journal.Wait{w}, timeout)
		if err != nil {
			return d, err
		}
		d, err = answer(w, inbox)
		if d.Value != "" {
			if bad := json.Unmarshal([]byte(d.Value), out); bad != nil {
				d.Code, d.Value = run.CodeMalformed, ""
				d.Error = fmt.Sprintf("flow: the answer to %q at step %s is no %v: %v", w.Name, w.Path, reflect.TypeOf(out).Elem(), bad)
			}
		}
		return d, err
	})
	return d, err
}

// Listen is flow.Listen.
func (p *place) Listen(ctx context.Context, s session.Session, w journal.Wait, timeout time.Duration) (session.Session, error) {
	st, err := p.begin(ctx, journal.StepAwait, "listen", s, true, "")
	if err != nil {
		return s, err
	}
	defer st.end()
	st.after = s
	err = st.make(nil, func() (d journal.StepCompleted, err error) {
		w.Path = st.asked.Path
		inbox, err := st.ex.signals.wait(ctx, []journal.Wait{w}, timeout)
		if err != nil {
			return d, err
		}
		st.content, d.Inbox = messageChunks(inbox)
		d.Summary = "hears " + excerpt.Counted(len(st.content), "message")
		if len(st.content) == 0 {
			d.Code, d.Error = run.CodeExpired, fmt.Sprintf("flow: no message came in %s", cmp.Or(max(timeout, 0), journal.DefaultExpiry))
		}
		return d, nil
	})
	return st.after, err
}

// messageChunks returns the messages of an inbox as chunks, and the place of the last.
func messageChunks(inbox []journal.SignalReceived) (chunks []session.Event, upTo uint64) {
	for _, v := range inbox {
		if v.Kind == journal.Message {
			chunks, upTo = append(chunks, session.ChunkEvent(session.UserText(v.Text))), v.N
		}
	}
	return chunks, upTo
}

// answer returns the outcome of a question from the received signals: the first answer
// counts.
func answer(w journal.Wait, inbox []journal.SignalReceived) (journal.StepCompleted, error) {
	for _, v := range inbox {
		if v.Path != w.Path {
			continue
		}
		switch v.Kind {
		case journal.Timer:
			return journal.StepCompleted{Code: run.CodeExpired, Error: fmt.Sprintf("flow: %q: the time is up", w.Name), Summary: "the time is up"}, nil
		case journal.Respond:
			return journal.StepCompleted{Value: v.Value, Summary: "answered" + by(v)}, nil
		case journal.Approve, journal.Refuse:
			a := flow.Approval{Approved: v.Kind == journal.Approve, By: v.By, Reason: v.Reason, Says: v.Says}
			decision := "rejected"
			if a.Approved {
				decision = "approved"
			}
			if v.Value != "" {
				a.Value = json.RawMessage(v.Value)
			}
			value, err := json.Marshal(a)
			if err != nil {
				return journal.StepCompleted{}, fmt.Errorf("flow: answer to %q: %w", w.Name, err)
			}
			return journal.StepCompleted{Value: string(value), Summary: excerpt.Clip(decision+by(v), 200)}, nil
		}
	}
	return journal.StepCompleted{}, fmt.Errorf("flow: no answer to %q at step %s", w.Name, w.Path)
}

func by(v journal.SignalReceived) string {
	text := ""
	if who := journal.Named(v.By, v.Says); who != "" {
		text = " by " + who
	}
	if v.Kind == journal.Approve && v.Value != "" {
		text += ", edited"
	}
	if v.Reason != "" {
		text += ": " + v.Reason
	}
	return text
}

// wait returns the received signals once all of ws have come. Until then it records that
// the run waits, and stops the execution.
func (s *signals) wait(ctx context.Context, ws []journal.Wait, timeout time.Duration) ([]journal.SignalReceived, error) {
	ex := s.ex
	ex.mu.Lock()
	inbox, stop := slices.Clone(ex.inbox.signals), ex.life.stopped()
	release, err := ex.around.releaseSiblings()
	ex.mu.Unlock()
	if stop != nil || err != nil {
		return nil, errors.Join(stop, err)
	}
	if !slices.ContainsFunc(ws, func(w journal.Wait) bool { return !w.Came(inbox) }) {
		return inbox, nil
	}
	for i := range ws {
		ws[i].Title, ws[i].Detail = excerpt.Clip(ws[i].Title, maxTitle), excerpt.Clip(ws[i].Detail, journal.MaxDetail)
	}
	if timeout != 0 {
		due := ex.rt.Clock.Now().Add(timeout).UnixMilli()
		for i := range ws {
			if ws[i].Kind != run.WaitTimer || ws[i].Due == 0 {
				ws[i].Due = due
			}
		}
	}
	e, err := journal.NewEvent(journal.KindRunWaiting, journal.RunWaiting{Attempt: ex.attempt, For: ws, Revision: ex.reg.Revision, Run: ex.id})
	if err != nil {
		return nil, err
	}
	ack, err := ex.log.commit(ctx, ex.home, session.Session{}, "", nil, append(release, e)...)
	if err != nil {
		return nil, err
	}
	if ack.State == run.Waiting {
		return nil, ex.failed(fmt.Errorf("%w: it waits for %s at step %s", run.ErrSuspended, ws[0].Kind, ws[0].Path))
	}
	s.receive(ack.Inbox...)
	return ack.Inbox, nil
}

// maxTitle bounds the title of a question, as journal.MaxDetail bounds its detail.
const maxTitle = 1 << 10

// receive adds signals to the inbox of the execution.
func (s *signals) receive(all ...journal.SignalReceived) {
	ex := s.ex
	ex.mu.Lock()
	defer ex.mu.Unlock()
	fresh := false
	for _, v := range all {
		if !ex.account.report(v) {
			fresh = ex.inbox.add(v) || fresh
		}
	}
	if fresh && ex.inbox.interrupt != nil {
		ex.inbox.interrupt()
	}
}

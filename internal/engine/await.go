package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/form"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/question"
	"github.com/rathcluster/rath/internal/engine/stepper"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Await implements flow.Await. The session's writer rejects answers that do not match the
// schema of the question. An answer that T itself does not decode is recorded, and the
// question is asked again at the step's path with "again" and a number.
func (p *waits) Await(ctx context.Context, w journal.Wait, timeout time.Duration, out any) error {
	if w.Kind == run.WaitRun {
		end, err := awaitRun(ctx, &p.spot, run.ID(w.Name), timeout)
		*out.(*flow.RunEnd) = end
		return err
	}
	args := []string{w.Kind}
	if w.Kind == run.WaitEvent {
		args = append(args, w.Key)
	}
	st, err := p.begin(ctx, journal.StepAwait, w.Name, session.Session{}, false, "", args...)
	if err != nil {
		return err
	}
	defer st.end()
	first, detail := st.asked, w.Detail
	for again := 0; ; again++ {
		d, err := st.await(w, timeout, out)
		if e, ok := out.(*flow.Event); ok && err == nil {
			return gotEvent(st.ex, st.asked.Path, e)
		}
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
		if w, err = asked(st.ex, w, st.asked.Path, out); err != nil {
			return d, err
		}
		inbox, err := st.ex.signals.wait(st.ctx, []journal.Wait{w}, timeout, false)
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

// asked returns w as the wait of a step at a path. The answer goes to out.
func asked(ex *Execution, w journal.Wait, at run.Path, out any) (journal.Wait, error) {
	w.Path = at
	if w.Kind == run.WaitEvent {
		err := ofEvent(ex, &w)
		return w, err
	}
	if w.Kind == run.WaitResponse {
		if schema, err := form.Of(reflect.TypeOf(out).Elem()); err == nil && len(schema) <= form.MaxSchema {
			w.Schema = string(schema)
		}
	}
	return w, nil
}

// First implements flow.Select.
func (p *waits) First(ctx context.Context, cases []stepper.Case) (int, context.Context, error) {
	var args []string
	for _, c := range cases {
		if args = append(args, c.Wait.Kind, c.Wait.Name); c.Wait.Kind == run.WaitEvent {
			args = append(args, c.Wait.Key)
		}
	}
	st, err := p.begin(ctx, journal.StepSelect, journal.StepSelect, session.Session{}, false, "", args...)
	if err != nil {
		return 0, nil, err
	}
	defer st.end()
	at, first := journal.SelectPath(st.asked.Path), 0
	if err := st.make(func() error { return st.decode(&first) }, func() (d journal.StepCompleted, err error) {
		if first, err = firstOf(st, cases, at); err != nil {
			return d, err
		}
		d.Value, d.Summary = strconv.Itoa(first), cases[first].Wait.Kind+" came first"
		if name := cases[first].Wait.Name; cases[first].Wait.Kind != name {
			d.Summary = excerpt.Clip(cases[first].Wait.Kind+" "+name+" came first", 200)
		}
		return d, nil
	}); err != nil {
		return 0, nil, err
	}
	return first, stepper.With(ctx, placeIn(&scope{ex: st.ex, prefix: at, next: first, line: p.sc.line})), nil
}

// firstOf waits for the first of several cases, and returns its index.
func firstOf(st *step, cases []stepper.Case, at run.Path) (int, error) {
	ex := st.ex
	ws := make([]journal.Wait, len(cases))
	for i, c := range cases {
		var err error
		if ws[i], err = asked(ex, c.Wait, at.Index(i), c.Out); err != nil {
			return 0, err
		}
		if c.Timeout != 0 {
			ws[i].Due = ex.rt.Clock.Now().Add(c.Timeout).UnixMilli()
		}
		if c.Wait.Kind != run.WaitRun {
			continue
		}
		end, err := startedRun(st, run.ID(c.Wait.Name))
		if err != nil || end != nil { // another step has it
			return i, err
		}
	}
	inbox, err := ex.signals.wait(st.ctx, ws, 0, true)
	return journal.First(ws, inbox), err
}

// Listen is flow.Listen.
func (p *waits) Listen(ctx context.Context, s session.Session, w journal.Wait, timeout time.Duration) (session.Session, error) {
	st, err := p.begin(ctx, journal.StepAwait, "listen", s, true, "")
	if err != nil {
		return s, err
	}
	defer st.end()
	st.after = s
	err = st.make(nil, func() (d journal.StepCompleted, err error) {
		w.Path = st.asked.Path
		inbox, err := st.ex.signals.wait(ctx, []journal.Wait{w}, timeout, false)
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
		case journal.Event:
			return eventAnswer(v.Event)
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
	if fresh {
		ex.lines.changed.Broadcast()
	}
	if fresh && ex.inbox.interrupt != nil {
		ex.inbox.interrupt()
	}
}

package flow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// AwaitOptions change what [Await] waits for; nil means the defaults.
type AwaitOptions struct {
	// Title and Detail tell people what is asked.
	Title, Detail string
	// Timeout is after how long Await gives up with run.ErrExpired; zero is
	// run.DefaultExpiry. It is counted from the commit that asks.
	Timeout time.Duration
}

// Await waits until somebody responds to this step with a value: `rath
// respond`, client.Respond, or a request on rath.ctl.<tenant>.<run>.respond
// that names the step's path. T must survive JSON.
//
// A waiting run holds nothing but its session: no goroutine, no slot, no
// sandbox. Await then returns run.ErrSuspended, which Forward returns like any
// error; once the answer is in the log the run goes on, here or on another
// node, by running Forward again up to this step. On a node it stays for a moment
// before that, without slot and sandbox, and an answer that comes so soon is
// simply returned.
func Await[T any](ctx context.Context, name string, o *AwaitOptions) (T, error) {
	var zero T
	if o == nil {
		o = &AwaitOptions{}
	}
	v, err := await(ctx, run.Wait{Kind: run.WaitResponse, Name: name, Title: o.Title, Detail: o.Detail}, o.Timeout)
	if err != nil {
		return zero, err
	}
	return fromRecord[T](&run.Step{StepCompleted: v})
}

// Sleep waits for a while. Only a timer that is recorded ends it, so a run that
// sleeps holds nothing and survives restarts.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	_, err := await(ctx, run.Wait{Kind: run.WaitTimer, Name: "sleep", Title: "sleeps " + d.String()}, d)
	if errors.Is(err, run.ErrExpired) {
		return nil
	}
	return err
}

// Question is what a person is asked to approve.
type Question struct {
	Title, Detail string
	// Expires is how long the question stands; zero is run.DefaultExpiry. Then
	// Approve returns run.ErrExpired.
	Expires time.Duration
}

// Approval is a person's decision.
type Approval struct {
	Approved bool   `json:"approved"`
	By       string `json:"by,omitempty"` // as said: whoever may answer may write what he likes
	Reason   string `json:"reason,omitempty"`
	// Value is what the person changed, as JSON; nil if nothing.
	Value json.RawMessage `json:"value,omitempty"`
}

// Approve asks a person and waits for the decision as [Await] does. The answer
// comes by `rath approve` and `rath reject`, or on rath.ctl.
func Approve(ctx context.Context, q Question) (Approval, error) {
	v, err := await(ctx, run.Wait{Kind: run.WaitApproval, Name: q.Title, Title: q.Title, Detail: q.Detail}, q.Expires)
	if err != nil {
		return Approval{}, err
	}
	return fromRecord[Approval](&run.Step{StepCompleted: v})
}

// Listen waits for the user's next words and returns s with them as chunks.
func Listen(ctx context.Context, s session.Session, o *AwaitOptions) (session.Session, error) {
	if o == nil {
		o = &AwaitOptions{}
	}
	st, err := begin(ctx, run.StepAwait, "listen", s, true, "")
	if err != nil {
		return s, err
	}
	defer st.end()
	if st.decision == run.Replay {
		return st.record.Session, st.record.Code.Err(st.record.Error)
	}
	w := run.Wait{Kind: run.WaitMessage, Name: "listen", Path: st.asked.Path, Title: o.Title, Detail: o.Detail}
	inbox, err := st.ex.wait(ctx, []run.Wait{w}, o.Timeout)
	if err != nil {
		return s, st.fail(err)
	}
	chunks, upTo := heard(inbox)
	d := run.StepCompleted{Inbox: upTo, Summary: "hears " + count(len(chunks), "message")}
	if len(chunks) == 0 {
		d.Code, d.Error = run.CodeExpired, fmt.Sprintf("flow: nobody said anything in %s", cmp.Or(max(o.Timeout, 0), run.DefaultExpiry))
	}
	ack, err := st.commit(d, chunks...)
	if err != nil {
		return s, err
	}
	st.ex.take(d.Inbox, st.asked.Path)
	return ack.Session, d.Code.Err(d.Error)
}

// heard returns the messages of an inbox as chunks, and the place of the last.
func heard(inbox []run.SignalReceived) (chunks []session.Event, upTo uint64) {
	for _, v := range inbox {
		if v.Kind == run.Message {
			chunks, upTo = append(chunks, session.ChunkEvent(session.UserText(v.Text))), v.N
		}
	}
	return chunks, upTo
}

// await is a step that one answer from outside decides.
func await(ctx context.Context, w run.Wait, timeout time.Duration) (run.StepCompleted, error) {
	st, err := begin(ctx, run.StepAwait, w.Name, session.Session{}, false, "", w.Kind)
	if err != nil {
		return run.StepCompleted{}, err
	}
	defer st.end()
	if st.decision == run.Replay {
		return st.record.StepCompleted, st.record.Code.Err(st.record.Error)
	}
	w.Path = st.asked.Path
	inbox, err := st.ex.wait(ctx, []run.Wait{w}, timeout)
	if err != nil {
		return run.StepCompleted{}, st.fail(err)
	}
	return st.answered(w, inbox)
}

// answered records the answer to a question.
func (st *step) answered(w run.Wait, inbox []run.SignalReceived) (run.StepCompleted, error) {
	d, err := answer(w, inbox)
	if err != nil {
		return d, st.fail(err)
	}
	if _, err := st.commit(d); err != nil {
		return run.StepCompleted{}, err
	}
	st.ex.take(0, w.Path)
	return d, d.Code.Err(d.Error)
}

// answer turns what was received for a question into its outcome: the first
// answer counts.
func answer(w run.Wait, inbox []run.SignalReceived) (run.StepCompleted, error) {
	for _, v := range inbox {
		if v.Path != w.Path {
			continue
		}
		switch v.Kind {
		case run.Timer:
			return run.StepCompleted{Code: run.CodeExpired, Error: fmt.Sprintf("flow: %q: the time is up", w.Name), Summary: "the time is up"}, nil
		case run.Respond:
			return run.StepCompleted{Value: v.Value, Summary: "answered" + by(v)}, nil
		case run.Approve, run.Refuse:
			a := Approval{Approved: v.Kind == run.Approve, By: v.By, Reason: v.Reason}
			said := "rejected"
			if a.Approved {
				said = "approved"
			}
			if v.Value != "" {
				a.Value = json.RawMessage(v.Value)
			}
			value, err := json.Marshal(a)
			if err != nil {
				return run.StepCompleted{}, fmt.Errorf("flow: answer to %q: %w", w.Name, err)
			}
			return run.StepCompleted{Value: string(value), Summary: clip(said+by(v), 200)}, nil
		}
	}
	return run.StepCompleted{}, fmt.Errorf("flow: no answer to %q at step %s", w.Name, w.Path)
}

func by(v run.SignalReceived) string {
	text := ""
	if v.By != "" {
		text = " by " + v.By
	}
	if v.Kind == run.Approve && v.Value != "" {
		text += ", edited"
	}
	if v.Reason != "" {
		text += ": " + v.Reason
	}
	return text
}

// wait returns what the run received once all that ws name has come; until
// then it records that the run waits, and stops the execution.
func (ex *Execution) wait(ctx context.Context, ws []run.Wait, timeout time.Duration, with ...session.Event) ([]run.SignalReceived, error) {
	ex.mu.Lock()
	inbox, stop := slices.Clone(ex.inbox.signals), ex.life.stopped()
	told, err := ex.letGo()
	ex.mu.Unlock()
	if stop != nil || err != nil {
		return nil, errors.Join(stop, err)
	}
	if !slices.ContainsFunc(ws, func(w run.Wait) bool { return !w.Came(inbox) }) {
		return inbox, nil
	}
	if timeout > 0 {
		due := time.Now().Add(timeout).UnixMilli()
		for i := range ws {
			ws[i].Due = due
		}
	}
	e, err := run.NewEvent(run.KindWaiting, run.RunWaiting{Attempt: ex.attempt, For: ws, Run: ex.id})
	if err != nil {
		return nil, err
	}
	ack, err := ex.commit(ctx, ex.home, session.Session{}, "", nil, append(append(with, told...), e)...)
	if err != nil {
		return nil, err
	}
	if ack.State == run.Waiting {
		return nil, ex.failed(fmt.Errorf("%w: it waits for %s at step %s", run.ErrSuspended, ws[0].Kind, ws[0].Path))
	}
	ex.receive(ack.Inbox...)
	return ack.Inbox, nil
}

// receive takes what reached the run into the execution's inbox.
func (ex *Execution) receive(all ...run.SignalReceived) {
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

// take removes what a step consumed from the inbox.
func (ex *Execution) take(upTo uint64, path run.Path) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.inbox.take(upTo, path)
}

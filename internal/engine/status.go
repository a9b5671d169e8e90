package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// statusPause is the time that a status waits for a commit to go along with.
const statusPause = time.Second

// status is the newest status of a run that no commit has yet. The execution's mu guards
// its fields.
type status struct {
	ex      *Execution
	n       uint64          // the number of times that Forward has set it
	newest  journal.Status  // set or recorded
	pending *journal.Status // nil if a commit has it
	timer   *time.Timer     // for a commit of its own; nil before the first
	armed   bool
	closed  bool           // Forward has returned: the end of the execution takes it along
	commits sync.WaitGroup // commits of its own
}

// SetStatus is flow.SetStatus.
func (p *place) SetStatus(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("flow: the status is not JSON: %w", err)
	}
	if len(text) > journal.MaxStatus {
		return fmt.Errorf("flow: a status of %d bytes: %w; it has at most %d: show less, and keep the rest in the session", len(text), session.ErrTooLarge, journal.MaxStatus)
	}
	var ex *Execution
	var at run.Path
	if p.in != nil {
		ex, at = p.in.ex, p.in.asked.Path
	} else { // of the next step
		ex, at = p.sc.ex, p.sc.path()
	}
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if ex.pos.recorder == nil && ex.levels.owner(at).run == ex.id {
		ex.status.set(string(text), p.in != nil || p.sc.within != nil)
	}
	return nil
}

// set sets a status that the work of a step reports, or Forward. ex.mu is held.
func (st *status) set(value string, inStep bool) {
	if st.newest.Run == "" {
		st.newest = st.ex.granted.Record.Status
	}
	if !inStep {
		st.n++
	}
	if !inStep && st.n <= st.newest.N || value == st.newest.Value { // a former execution set it
		return
	}
	st.newest = journal.Status{N: st.n, Run: st.ex.id, Value: value}
	st.pending = new(st.newest)
	switch {
	case st.armed || st.closed:
	case st.timer == nil:
		st.timer, st.armed = time.AfterFunc(statusPause, st.commit), true
	default:
		st.armed = true
		st.timer.Reset(statusPause)
	}
}

// commit records a status that no other commit took along.
func (st *status) commit() {
	ex := st.ex
	ex.mu.Lock()
	st.armed = false
	if st.pending == nil || st.closed {
		ex.mu.Unlock()
		return
	}
	st.commits.Add(1)
	defer st.commits.Done()
	ex.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ex.life.ctx), finishTimeout)
	defer cancel()
	// The next step reports that the log is gone, or the execution superseded.
	_, _ = ex.log.append(ctx, journal.Batch{Session: ex.home, Run: ex.id, Attempt: ex.attempt})
}

// close lets the commits of the execution's end take the status along.
func (st *status) close() {
	st.ex.mu.Lock()
	st.closed = true
	if st.timer != nil {
		st.timer.Stop()
	}
	st.ex.mu.Unlock()
	st.commits.Wait()
}

// append appends a batch, and with one for the log of the run's home the status that waits
// for a commit.
func (w *logWriter) append(ctx context.Context, b journal.Batch) (journal.Ack, error) {
	ex := w.ex
	ex.mu.Lock()
	taken := ex.status.pending
	if b.Session != ex.home {
		taken = nil
	}
	if taken != nil {
		ex.status.pending = nil
	}
	ex.mu.Unlock()
	if taken != nil {
		e, err := journal.NewEvent(journal.KindStatus, *taken)
		if err != nil {
			return journal.Ack{}, err
		}
		b.Events = append([]session.Event{e}, b.Events...)
	}
	if len(b.Events) == 0 {
		return journal.Ack{}, nil
	}
	ack, err := w.store(ctx, b)
	if taken != nil && (err != nil || ack.Recorded != nil || len(ack.Inbox) > 0) { // the batch is not in the log
		ex.mu.Lock()
		if ex.status.pending == nil && ex.status.newest == *taken {
			ex.status.pending = taken
		}
		ex.mu.Unlock()
	}
	return ack, err
}

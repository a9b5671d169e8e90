package scripted

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/rathcluster/rath/llm"
)

// DefaultModel is the name of a model without one.
const DefaultModel = "scripted"

// DefaultHang bounds how long a hanging or stalling answer lasts.
const DefaultHang = 10 * time.Minute

// Options are the settings of a [Model]. The zero value answers without delay.
type Options struct {
	// Delay and Gap are used by replies that do not set their own: the time
	// to the first byte, and between the pieces of a stream.
	Delay, Gap time.Duration
	// Hang bounds the faults hang and stall; 0 is DefaultHang.
	Hang time.Duration
	// Models are the names that are listed and accepted. Without any, every name is
	// accepted and DefaultModel is listed.
	Models []string
	// Log gets one JSON line per request (see [Entry]), written before the
	// request is answered and flushed if it has a Flush method. A request that
	// cannot be logged is answered with an error. Lines are written one at a
	// time; nil is no log.
	Log io.Writer
	// Now is the clock of the log; nil is time.Now.
	Now func() time.Time
}

// Model answers requests from a script: as [llm.Models] and [llm.Client] in this
// process, and as an [http.Handler] that speaks the OpenAI protocol. It is safe for
// concurrent use and needs no Close.
type Model struct {
	script *Script
	o      Options
	log    *witness
	mux    http.Handler

	mu   sync.Mutex
	used map[int]int // answers of rules that have a limit
}

var (
	_ llm.Client   = (*Model)(nil)
	_ llm.Models   = (*Model)(nil)
	_ http.Handler = (*Model)(nil)
)

// New returns a model that answers from s; nil is [Echo]. It fails if s is
// not valid.
func New(s *Script, o *Options) (*Model, error) {
	if s == nil {
		s = Echo()
	}
	if err := s.validate(); err != nil {
		return nil, err
	}
	m := &Model{script: s, used: map[int]int{}}
	if o != nil {
		m.o = *o
		m.o.Models = slices.Clone(o.Models)
	}
	if m.o.Hang <= 0 {
		m.o.Hang = DefaultHang
	}
	if m.o.Now == nil {
		m.o.Now = time.Now
	}
	if m.o.Log != nil {
		m.log = &witness{w: m.o.Log}
	}
	m.mux = m.routes()
	return m, nil
}

// Client returns m for every valid provider: a script needs no key and no
// address.
func (m *Model) Client(_ context.Context, p llm.Provider) (llm.Client, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return m, nil
}

// Complete implements [llm.Client].
func (m *Model) Complete(ctx context.Context, r *llm.Request, sink func(llm.Delta)) (*llm.Response, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if err := r.Unsupported("a script"); err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("scripted model: %w", err)
	}
	a, err := m.decide(newView(r), Entry{Via: "process", Stream: sink != nil})
	if err != nil {
		return nil, err
	}
	if err := m.wait(ctx, a.Delay); err != nil {
		return nil, err
	}
	if a.err != nil {
		e := *a.err
		return nil, &e
	}
	switch a.Fault {
	case faultHang:
		return nil, m.hang(ctx, llm.CodeTimeout)
	case faultDrop:
		return nil, &llm.Error{Code: llm.CodeUnavailable, Message: "scripted model: the connection was closed"}
	case faultHTML:
		return nil, &llm.Error{Code: llm.CodeMalformed, Status: 200, Message: "scripted model: the answer is a web page"}
	}
	if sink != nil {
		ds := pieces(&a.resp)
		if a.Fault != "" {
			ds = ds[:len(ds)/2]
		}
		for i, d := range ds {
			if i > 0 {
				if err := m.wait(ctx, a.Gap); err != nil {
					return nil, err
				}
			}
			sink(d)
		}
	}
	switch a.Fault {
	case faultStall:
		return nil, m.hang(ctx, llm.CodeIdleTimeout)
	case faultTruncate, faultAbort:
		return nil, &llm.Error{Code: llm.CodeTruncated, Message: "scripted model: the stream ended in the middle"}
	case faultGarbage:
		return nil, &llm.Error{Code: llm.CodeMalformed, Message: "scripted model: a chunk is not JSON"}
	case faultError:
		return nil, a.midError()
	}
	return &a.resp, nil
}

// midError is the error that faultError reports.
func (a *answer) midError() *llm.Error {
	p := reply{Code: a.Code, RetryAfter: a.RetryAfter}
	if p.Code == "" {
		p.Code = llm.CodeUnavailable
	}
	return p.failure("")
}

// decide chooses the answer and writes the log. Its error is the answer to a
// request that no rule answers or that cannot be logged.
func (m *Model) decide(v *view, e Entry) (*answer, error) {
	var a answer
	var failed *llm.Error
	if name := v.r.Provider.Model; name != "" && len(m.o.Models) > 0 && !slices.Contains(m.o.Models, name) {
		failed = &llm.Error{Code: llm.CodeModelNotFound, Status: 404, Message: fmt.Sprintf(
			"the model %q does not exist; there are %v", name, m.o.Models)}
	} else if i, misses := m.script.find(v, m.allow); i < 0 {
		failed = m.script.noRule(v, misses)
	} else {
		rule := &m.script.rules[i]
		a = rule.Reply.answer(v)
		e.Rule, e.Fault = rule.Name, a.Fault
		if a.reply.Delay == 0 || a.reply.Gap == 0 {
			p := *a.reply
			if p.Delay == 0 {
				p.Delay = m.o.Delay
			}
			if p.Gap == 0 {
				p.Gap = m.o.Gap
			}
			a.reply = &p
		}
	}
	if m.log != nil {
		switch {
		case failed != nil:
			e.Status = failed.Status
		case a.err != nil:
			e.Status = a.err.Status
		case a.Fault != faultHang && a.Fault != faultDrop:
			e.Status = http.StatusOK
		}
		e.Time, e.Step, e.Model = m.o.Now().UTC(), v.r.StepKey, v.r.Provider.Model
		e.Messages, e.Digest = len(v.r.Messages), Digest(v.r.Messages)
		if v.try > 1 {
			e.Try = v.try
		}
		if err := m.log.note(&e); err != nil {
			return nil, &llm.Error{Code: llm.CodeUnavailable, Status: 500, Message: err.Error()}
		}
	}
	if failed != nil {
		return nil, failed
	}
	return &a, nil
}

// allow counts an answer of a rule that has a limit, if there is one left.
func (m *Model) allow(i int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used[i] >= m.script.rules[i].Times {
		return false
	}
	m.used[i]++
	return true
}

// wait waits for d or until ctx ends.
func (m *Model) wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("scripted model: %w", context.Cause(ctx))
	}
}

// hang waits until ctx ends, at most Options.Hang.
func (m *Model) hang(ctx context.Context, code llm.Code) error {
	if err := m.wait(ctx, m.o.Hang); err != nil {
		return err
	}
	return &llm.Error{Code: code, Message: fmt.Sprintf("scripted model: silent for %v", m.o.Hang)}
}

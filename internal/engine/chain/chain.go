package chain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/llm"
)

// Chain has the models that a call may ask for one answer, or for vectors: the servers of
// a pool, and their substitutes.
type Chain struct {
	Choices  []Choice
	Breakers *Breakers
	at       int  // the current choice
	limited  bool // its limits rejected a request
	passed   []passedChoice
}

// passedChoice is a choice that failed and was passed over, with its error.
type passedChoice struct {
	name string
	err  error
}

// Asked returns the current choice.
func (m *Chain) Asked() *Choice { return &m.Choices[m.at] }

// Asker is a call for which a chain sends requests.
type Asker interface {
	// Turn prepares requests to a choice, or returns the reason why the choice cannot
	// answer.
	Turn(c *Choice) error
	// Send sends a request, once the limits admit it, and counts it in r. It returns
	// ErrOtherwise if the request can be made in another way, after the next Turn.
	Send(r *Tries) error
	// Pass records that a choice failed.
	Pass(c *Choice, err error)
	// Again prepares another request, and Sleep waits before it.
	Again() error
	Sleep(pause time.Duration) error
}

// ErrOtherwise is the error of a request that can be made in another way.
var ErrOtherwise = errors.New("flow: the request is to be made otherwise")

// Ask sends requests by the policy of retries, and moves to the next choice when one
// fails, until a request is answered.
func (m *Chain) Ask(ctx context.Context, a Asker) error {
	r := Tries{began: time.Now()}
	err := m.choose(a, 0)
	for {
		if err == nil {
			if ctx.Err() != nil { // no request was sent
				return context.Cause(ctx)
			}
			if err = a.Send(&r); err == nil {
				return nil
			}
		}
		retries, next := m.Asked().Retries, m.next(err)
		switch {
		case errors.Is(err, ErrOtherwise):
			next = m.at
		case next < len(m.Choices) && ctx.Err() == nil && r.moves(retries, err):
			m.pass(a, err)
			r.here = 0
		default:
			pause, ok := r.pause(ctx, retries, err)
			if !ok {
				return m.explain(r.last(err))
			}
			if err = a.Again(); err == nil {
				err = a.Sleep(pause)
			}
			if err != nil {
				return err
			}
			continue
		}
		if err := a.Again(); err != nil {
			return err
		}
		err = m.choose(a, next)
	}
}

// next returns the index of the choice after the failed one. A request that is too long
// for a model is too long at all of its servers, which have one limit.
func (m *Chain) next(err error) int {
	next := m.at + 1
	if m.limited || llm.CodeOf(err) == llm.CodeContextLength {
		for next < len(m.Choices) && m.Choices[next].replicaOf(m.Asked()) {
			next++
		}
	}
	return next
}

// choose selects the choice at i, or a later one if its server is known to fail.
func (m *Chain) choose(a Asker, i int) error {
	for m.at, m.limited = i, false; m.at+1 < len(m.Choices); m.at++ {
		if !m.Breakers.open(&m.Asked().Provider) {
			break
		}
		m.pass(a, &llm.Error{Code: llm.CodeUnavailable, Message: fmt.Sprintf("it failed %d times in a row", breakAfter)})
	}
	return a.Turn(m.Asked())
}

// pass records that the current choice failed. Of the servers of a pool only the last
// error is kept.
func (m *Chain) pass(a Asker, err error) {
	c := m.Asked()
	a.Pass(c, err)
	if n := len(m.passed); n > 0 && m.at > 0 && c.replicaOf(&m.Choices[m.at-1]) {
		m.passed = m.passed[:n-1]
	}
	m.passed = append(m.passed, passedChoice{c.String(), err})
}

// Limits of the text about passed choices in an error, in bytes.
const (
	maxPassedReason = 240 // of each
	maxPassed       = 600 // of all
)

// explain puts the passed choices and their errors before the error of the last choice:
// the remedy is often there.
func (m *Chain) explain(err error) error {
	failed, ok := errors.AsType[*llm.Error](err)
	if !ok || len(m.passed) == 0 {
		return err
	}
	var before []string
	for _, p := range m.passed {
		if p.name == m.Asked().String() { // a server of the same pool
			continue
		}
		why := strings.TrimPrefix(strings.TrimPrefix(p.err.Error(), llm.CodeOf(p.err).Error()), ": ")
		before = append(before, fmt.Sprintf("model %s: %s", p.name, excerpt.Clip(cmp.Or(why, string(llm.CodeOf(p.err))), maxPassedReason)))
	}
	if len(before) == 0 {
		return err
	}
	said := *failed
	said.Message = fmt.Sprintf("%s; then model %s: %s", excerpt.Clip(strings.Join(before, "; "), maxPassed), m.Asked(), cmp.Or(failed.Message, string(failed.Code)))
	return &said
}

// Admit waits until the limits of the choice admit a request. It waits as long as the
// policy of retries allows, and at most maxWait if another model can be asked.
func (m *Chain) Admit(ctx context.Context, tenant string, tokens int64, r *Tries) (settle func(int64), err error) {
	c := m.Asked()
	if c.Limiter == nil {
		return nil, nil
	}
	wait := m.Patience(r)
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errLimited)
	defer cancel()
	settle, err = c.Limiter.Acquire(ctx, tenant, tokens)
	if errors.Is(err, errLimited) {
		m.limited = true
		err = &llm.Error{Code: llm.CodeRateLimited, Final: true, Message: fmt.Sprintf(
			"the limits that the node's list gives model %s or its key, for all nodes, let no request through for %v; raise them there or ask less", c, wait.Round(time.Second))}
	}
	return settle, err
}

var errLimited = errors.New("flow: the limits of the model let no request through")

// Patience returns the time to wait for the limits of the choice.
func (m *Chain) Patience(r *Tries) time.Duration {
	c := m.Asked()
	wait := c.Retries.orDefault().Within - time.Since(r.began)
	for i := range m.Choices[m.at+1:] {
		if !m.Choices[m.at+1+i].replicaOf(c) {
			return min(wait, maxWait)
		}
	}
	return wait
}

package flow

import (
	"context"
	"errors"

	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// cutOff returns what a model call that failed with err is taken to have used,
// from the bytes of its prompt and of what came of its answer. It is nothing
// where the server said that it answers nothing.
func cutOff(ctx context.Context, err error, prompt, came int) session.Usage {
	silent := errors.Is(err, llm.CodeTruncated) || errors.Is(err, llm.CodeIdleTimeout) || errors.Is(err, llm.CodeTimeout)
	if came == 0 && !silent && ctx.Err() == nil {
		return session.Usage{}
	}
	return session.Usage{Calls: 1, Input: llm.Estimate(prompt), Output: llm.Estimate(came)}
}

// book charges the run with a call of the step that was cut off. The step's
// record will say it, or else the event that ends the attempt.
func (st *step) book(used session.Usage) {
	ex := st.ex
	ex.mu.Lock()
	defer ex.mu.Unlock()
	st.lost = st.lost.Add(used)
	ex.account, ex.lost, ex.unsaid = ex.account.Lost(used), ex.lost.Add(used), ex.unsaid.Add(used)
}

// bookKilled charges the calls of a model that former attempts may have been
// killed in, with all that one of them may have used; only the first step that
// is not recorded can be such a call. Where no limit is to be kept nothing is
// made up.
func (st *step) bookKilled(most int64) {
	ex := st.ex
	ex.mu.Lock()
	n := min(int64(ex.killed), int64(ex.attempt-max(ex.newest, 1)))
	ex.killed = 0
	limited := ex.account.Limit.Tokens > 0
	ex.mu.Unlock()
	if n > 0 && limited {
		st.book(session.Usage{Calls: n, Input: n * most})
	}
}

// reserve sets tokens aside for a call; free gives them back, once.
func (ex *Execution) reserve(tokens int64) (free func(), err error) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	account, err := ex.account.Reserve(tokens)
	if err != nil {
		return func() {}, err
	}
	ex.account = account
	return func() {
		ex.mu.Lock()
		defer ex.mu.Unlock()
		ex.account.Reserved -= tokens
	}, nil
}

// said notes that a step's record says what was lost. If it could not be
// committed, what its call used was used all the same.
func (ex *Execution) said(lost, used session.Usage, err error) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if err != nil {
		ex.account.Spent = ex.account.Spent.Add(used)
		return
	}
	ex.killed, ex.unsaid = 0, ex.unsaid.Sub(lost)
}

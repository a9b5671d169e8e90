package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rathcluster/rath/llm"
)

// admit waits until the limits of the choice let the request through. It waits for as long
// as the policy of retries lasts, and no longer than maxWait where another model can be asked.
func (m *completion) admit(r *retry) error {
	c := &m.choices[m.at]
	if c.Limiter == nil {
		return nil
	}
	wait := c.Retries.orDefault().Within - time.Since(r.began)
	if m.at+1 < len(m.choices) {
		wait = min(wait, maxWait)
	}
	m.st.flight.waits(c.String(), time.Now().Add(wait))
	tokens := cmp.Or(int64(c.Provider.MaxTokens), defaultReply) + llm.Estimate(m.size)
	settle, err := c.admit(m.ctx, string(m.st.s.Key().Tenant), tokens, wait)
	m.settles = settle
	return err
}

// admit waits for the limits of the choice, which has some, for so long.
func (c *Choice) admit(ctx context.Context, tenant string, tokens int64, wait time.Duration) (settle func(int64), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errLimited)
	defer cancel()
	settle, err = c.Limiter.Acquire(ctx, tenant, tokens)
	if errors.Is(err, errLimited) {
		err = &llm.Error{Code: llm.CodeRateLimited, Final: true, Message: fmt.Sprintf(
			"the limits that the node's list gives model %s or its key, for all nodes, let no request through for %v; raise them there or ask less", c, wait.Round(time.Second))}
	}
	return settle, err
}

var errLimited = errors.New("flow: the limits of the model let no request through")

// settle tells the limits how many tokens the request used that they let through.
func (m *completion) settle(used int64) {
	if m.settles != nil {
		m.settles(used)
		m.settles = nil
	}
}

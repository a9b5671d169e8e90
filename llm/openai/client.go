package openai

import (
	"context"

	"github.com/rathcluster/rath/internal/models/exchange"
	"github.com/rathcluster/rath/llm"
)

// client completes requests at one endpoint.
type client struct {
	*exchange.Endpoint
	responses bool
}

var _ llm.Client = (*client)(nil)

// Complete implements [llm.Client].
func (c *client) Complete(ctx context.Context, r *llm.Request, sink func(llm.Delta)) (*llm.Response, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	e := c.For(r)
	if c.responses {
		if err := r.Unsupported("the Responses protocol"); err != nil {
			return nil, err
		}
		body, thoughts, err := encodeResponses(r, e)
		if err != nil {
			return nil, err
		}
		resp, err := e.Complete(ctx, r, "/responses", body, &output{e: e, Passed: exchange.Passed{Sink: sink}, model: e.Model})
		return resp, exchange.Mark(err, thoughts)
	}
	body, thoughts, err := encode(r, e)
	if err != nil {
		return nil, err
	}
	resp, err := e.Complete(ctx, r, "/chat/completions", body, newAssembler(e, r, sink))
	return resp, exchange.Mark(err, thoughts)
}

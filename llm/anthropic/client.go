package anthropic

import (
	"context"

	"github.com/rathcluster/rath/internal/models/exchange"
	"github.com/rathcluster/rath/llm"
)

// Client implements llm.Models; see New.
func (m *models) Client(ctx context.Context, p llm.Provider) (llm.Client, error) {
	e, err := m.server.Resolve(ctx, p)
	if err != nil {
		return nil, err
	}
	return &client{e}, nil
}

// client completes requests at one endpoint.
type client struct{ *exchange.Endpoint }

var _ llm.Client = (*client)(nil)

// Complete implements [llm.Client].
func (c *client) Complete(ctx context.Context, r *llm.Request, sink func(llm.Delta)) (*llm.Response, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if err := r.Unsupported("Anthropic's protocol"); err != nil {
		return nil, err
	}
	e := c.For(r)
	body, refusable, err := encode(r, e)
	if err != nil {
		return nil, err
	}
	resp, err := e.Complete(ctx, r, "/messages", body, &answer{e: e, Passed: exchange.Passed{Sink: sink}, model: e.Model})
	return resp, exchange.Mark(err, refusable)
}

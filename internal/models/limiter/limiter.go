package limiter

import "context"

// Limiter keeps calls within what the owner of a key or a model allows in a minute. Its
// method may be called concurrently.
type Limiter interface {
	// Acquire waits until a request that may use so many tokens may be sent for a tenant.
	// settle is to be called once, when the request has ended, with the tokens that it
	// used. If there is an error nothing may be sent, and nothing is counted: it is an
	// *llm.Error, or wraps context.Cause(ctx) if ctx ended.
	Acquire(ctx context.Context, tenant string, tokens int64) (settle func(used int64), err error)
}

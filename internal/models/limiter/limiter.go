package limiter

import "context"

// Limiter keeps calls within the rate limits of the owner of a key or a model. Its
// method may be called concurrently.
type Limiter interface {
	// Acquire waits until a request of a tenant that may use the given number of tokens
	// may be sent. The caller must call settle once, when the request has ended, with
	// the tokens that it used. After an error the caller must not send the request, and
	// the limiter counts no usage. The error is an *llm.Error, or wraps
	// context.Cause(ctx) if ctx ended.
	Acquire(ctx context.Context, tenant string, tokens int64) (settle func(used int64), err error)
}

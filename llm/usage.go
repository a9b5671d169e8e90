package llm

// Usage counts what a completion consumed. It has no floats so that it can be
// summed, hashed and compared exactly.
type Usage struct {
	// Input counts all tokens of the prompt, also those read from or written
	// to the provider's cache.
	Input int64 `json:"input,omitempty"`
	// Output counts all generated tokens, also those of the reasoning.
	Output int64 `json:"output,omitempty"`
	// CacheRead and CacheWrite are parts of Input.
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
	// MicroUSD is the price in millionths of a US dollar, if the server told
	// it; 0 means unknown.
	MicroUSD int64 `json:"micro_usd,omitempty"`
}

// Add returns the sum of u and v.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		Input:      u.Input + v.Input,
		Output:     u.Output + v.Output,
		CacheRead:  u.CacheRead + v.CacheRead,
		CacheWrite: u.CacheWrite + v.CacheWrite,
		MicroUSD:   u.MicroUSD + v.MicroUSD,
	}
}

// Total returns the tokens in and out.
func (u Usage) Total() int64 { return u.Input + u.Output }

// Estimate guesses the tokens of n bytes of text, rounded up. It is within a
// third of the truth for English, code, JSON and Chinese; book the server's
// usage wherever there is one. Where it matters nodes count the tokens instead.
func Estimate(n int) int64 { return (int64(n) + 3) / 4 }

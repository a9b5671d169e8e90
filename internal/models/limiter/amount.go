package limiter

// Amount is a number of requests and tokens.
type Amount struct {
	Requests int64 `json:"requests,omitempty"`
	Tokens   int64 `json:"tokens,omitempty"`
}

func (a Amount) plus(b Amount) Amount { return Amount{a.Requests + b.Requests, a.Tokens + b.Tokens} }

func (a Amount) minus(b Amount) Amount { return Amount{a.Requests - b.Requests, a.Tokens - b.Tokens} }

func (a Amount) most(b Amount) Amount {
	return Amount{max(a.Requests, b.Requests), max(a.Tokens, b.Tokens)}
}

func (a Amount) least(b Amount) Amount {
	return Amount{min(a.Requests, b.Requests), min(a.Tokens, b.Tokens)}
}

// times is a scaled by a fraction, rounded down.
func (a Amount) times(f float64) Amount {
	return Amount{int64(float64(a.Requests) * f), int64(float64(a.Tokens) * f)}
}

// covers reports whether a is enough for b.
func (a Amount) covers(b Amount) bool { return a.Requests >= b.Requests && a.Tokens >= b.Tokens }

// of returns the larger of a's fractions of a limit, in which 0 is unlimited.
func (a Amount) of(limit Amount) float64 {
	part := 0.0
	if limit.Requests > 0 {
		part = float64(a.Requests) / float64(limit.Requests)
	}
	if limit.Tokens > 0 {
		part = max(part, float64(a.Tokens)/float64(limit.Tokens))
	}
	return part
}

// within zeroes the parts that the limit does not bound.
func (a Amount) within(limit Amount) Amount {
	if limit.Requests == 0 {
		a.Requests = 0
	}
	if limit.Tokens == 0 {
		a.Tokens = 0
	}
	return a
}

package models

import (
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// The sources of a call's cost in records of steps.
const (
	Priced = "priced" // computed from the tokens and the list
	Stated = "stated" // by the server
	Free   = "free"
)

// Prices are the prices of a model, in micro-USD per million tokens.
type Prices struct {
	Date                                   string // their date
	Input, CachedInput, CacheWrite, Output int64
}

// maxPrice is the highest accepted price: a thousand dollars per million tokens.
const maxPrice = 1_000_000_000

// Cost returns the cost of a call in micro-USD, rounded up.
func (p *Prices) Cost(u session.Usage) int64 {
	var hi, lo uint64
	for _, part := range []struct{ tokens, price int64 }{
		{u.Input - u.CacheRead - u.CacheWrite, p.Input}, {u.CacheRead, p.CachedInput}, {u.CacheWrite, p.CacheWrite}, {u.Output, p.Output},
	} {
		h, l := bits.Mul64(uint64(max(part.tokens, 0)), uint64(part.price))
		var carry uint64
		lo, carry = bits.Add64(lo, l, 0)
		hi, _ = bits.Add64(hi, h, carry)
	}
	lo, carry := bits.Add64(lo, 999_999, 0)
	if hi += carry; hi >= 1_000_000 {
		return math.MaxInt64 // of a server that states absurd counts
	}
	cost, _ := bits.Div64(hi, lo, 1_000_000)
	return int64(min(cost, math.MaxInt64))
}

// MicroUSD reads an amount of US dollars, such as 0.25, as micro-USD. It rejects
// fractions of one.
func MicroUSD(text string) (int64, error) {
	whole, fraction, _ := strings.Cut(text, ".")
	digits := func(s string) bool { return strings.Trim(s, "0123456789") == "" }
	if whole == "" || !digits(whole) || !digits(fraction) || len(whole) > 9 || len(strings.TrimRight(fraction, "0")) > 6 {
		return 0, fmt.Errorf("%q: want US dollars such as 0.25, to at most 6 places", llm.Clip(text, 40))
	}
	fraction = (fraction + "000000")[:6]
	var n int64
	for _, d := range whole + fraction {
		n = n*10 + int64(d-'0')
	}
	return n, nil
}

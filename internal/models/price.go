package models

import (
	_ "embed"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/rathcluster/rath/internal/models/listfile"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// How it is known what a call cost, as records of steps say it.
const (
	Priced = "priced" // computed from the tokens and the list
	Stated = "stated" // by the server
	Free   = "free"
)

// Prices are those of a model, in micro-USD for a million tokens.
type Prices struct {
	Date                                   string // on which they held
	Input, CachedInput, CacheWrite, Output int64
}

// maxPrice is the highest price that is taken: a thousand dollars for a million tokens.
const maxPrice = 1_000_000_000

// Cost returns what a call costs in micro-USD, rounded up.
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

// MicroUSD reads an amount of US dollars, such as 0.25, as micro-USD. It takes no
// fraction of one.
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

//go:embed public.yaml
var publicFile []byte

// PublicPrice is a price that a provider published.
type PublicPrice struct {
	ID string
	Prices
}

var publicPrices = sync.OnceValues(func() ([]PublicPrice, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(publicFile, &doc); err != nil {
		return nil, fmt.Errorf("models: public prices: %w", err)
	}
	p := &parser{&listfile.Parser{File: "public.yaml"}}
	var all []PublicPrice
	p.Each(doc.Content[0], "prices", func(key, value *yaml.Node) {
		all = append(all, PublicPrice{key.Value, *p.own(value, key.Value, strings.Contains(key.Value, "embedding"))})
	})
	return all, p.Err()
})

// PublicPrices returns the table of published prices. It is as old as its dates say: a
// list that takes one of them says so with "prices: public", after its author looked.
func PublicPrices() ([]PublicPrice, error) {
	all, err := publicPrices()
	return slices.Clone(all), err
}

// Public returns the published prices of a model.
func Public(id string) (*Prices, error) {
	all, err := publicPrices()
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, one := range all {
		if one.ID == id {
			return &one.Prices, nil
		}
		ids = append(ids, one.ID)
	}
	return nil, fmt.Errorf("no public price of %q is known (%s); write date, input and output", id, strings.Join(ids, ", "))
}

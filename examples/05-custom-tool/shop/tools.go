package shop

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rathcluster/rath/tool"
)

// shop is a system outside of Rath with an interface for programs. Like every
// good one it takes an idempotency key with an order: the same key again is the
// same order.
type shop struct {
	prices map[string]int // in cents

	mu     sync.Mutex
	orders map[string]int // order numbers by key
}

func newShop() *shop {
	return &shop{prices: map[string]int{"tea": 320, "coffee": 790}, orders: map[string]int{}}
}

// tools offers the shop to models. The schema that a model sees comes from the
// struct's fields and their tags.
func (s *shop) tools() []tool.Tool {
	return []tool.Tool{
		// Reading changes nothing: it may run again at any time.
		tool.Func("price", "Tells the price of an article.", s.price, &tool.FuncOptions{Effect: tool.ReadOnly}),
		// An order may be sent again under its key. Without this line it would
		// be tool.NonIdempotent: cut off in the middle, it would wait for a
		// person to say whether it happened.
		tool.Func("order", "Orders an article.", s.order, &tool.FuncOptions{Effect: tool.Idempotent}),
	}
}

type priceIn struct {
	Article string `json:"article" jsonschema:"what to buy, such as tea"`
}

type priceOut struct {
	Cents int `json:"cents"`
}

func (s *shop) price(_ context.Context, in priceIn) (priceOut, error) {
	cents, ok := s.prices[in.Article]
	if !ok {
		// The model reads this and may try something else.
		return priceOut{}, fmt.Errorf("there is no %q; there are tea and coffee", in.Article)
	}
	return priceOut{cents}, nil
}

type orderIn struct {
	Article string `json:"article" jsonschema:"what to buy"`
	Pieces  int    `json:"pieces" jsonschema:"how many"`
}

type orderOut struct {
	Number int `json:"number"`
	Cents  int `json:"cents"`
}

func (s *shop) order(ctx context.Context, in orderIn) (orderOut, error) {
	call, ok := tool.Current(ctx)
	if !ok {
		return orderOut{}, errors.New("order: called outside of an agent")
	}
	price, err := s.price(ctx, priceIn{in.Article})
	if err != nil {
		return orderOut{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	number, again := s.orders[call.ID] // the same on every attempt
	if !again {
		number = len(s.orders) + 1
		s.orders[call.ID] = number
	}
	return orderOut{number, in.Pieces * price.Cents}, nil
}

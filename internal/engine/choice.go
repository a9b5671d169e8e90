package engine

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/models/limiter"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Choice is a model that a call may ask.
type Choice struct {
	Name     string // in the node's list; "" of one that is not there
	Provider llm.Provider
	// Cost is how it is known what calls cost, as in journal.StepCompleted; "" if it is
	// not. Price, in micro-USD, is needed for "priced".
	Cost  string
	Price func(session.Usage) int64
	// Prices is the day on which the prices held.
	Prices string
	// Context is how many tokens a request may have; 0 is not known.
	Context int64
	NoTools bool // it cannot call tools
	Embeds  bool // it makes vectors of texts, and answers nothing
	Images  bool // it sees images
	Retries Retries
	// Limiter keeps requests within what may be asked in a minute; nil is anything.
	Limiter limiter.Limiter
}

// How it is known what a call cost; see journal.StepCompleted.
const (
	priced = "priced"
	stated = "stated"
	free   = "free"
)

func (c *Choice) String() string {
	if c.Name != "" {
		return c.Name
	}
	return c.Provider.Model
}

// replicaOf reports whether both are the same model of the list, at two servers of a pool.
func (c *Choice) replicaOf(o *Choice) bool { return c.Name != "" && c.Name == o.Name }

// placed puts the servers of each pool in the order in which they are asked by requests
// whose prefix has a key: the server that the prefix is cached at first. By rendezvous
// hashing all nodes agree on the order without a word, a server that goes moves its own
// prefixes alone, and they spread over all of the others.
func placed(all []Choice, key string) []Choice {
	for from := 0; from < len(all); {
		to := from + 1
		for to < len(all) && all[to].replicaOf(&all[from]) {
			to++
		}
		if to-from > 1 {
			all = slices.Clone(all)
			slices.SortStableFunc(all[from:to], func(a, b Choice) int {
				return cmp.Compare(weight(key, b.Provider.BaseURL), weight(key, a.Provider.BaseURL))
			})
		}
		from = to
	}
	return all
}

func weight(key, server string) uint64 {
	sum := sha256.Sum256([]byte(key + "\x00" + server))
	return binary.BigEndian.Uint64(sum[:])
}

// bill completes the usage of an answer, and returns how its cost is known.
func (c *Choice) bill(u *session.Usage) (cost, prices string) {
	switch {
	case u.MicroUSD > 0:
		return stated, ""
	case c.Cost == priced:
		u.MicroUSD = c.Price(*u)
		return priced, c.Prices
	case c.Cost == free:
		return free, ""
	}
	return "", ""
}

// estimate puts a price to what a call is taken to have used.
func (c *Choice) estimate(u session.Usage) session.Usage {
	if c.Cost == priced && u.MicroUSD == 0 {
		u.MicroUSD = c.Price(session.Usage{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite})
	}
	return u
}

// choices returns the models that a call may ask, in their order.
func (rt *Runtime) choices(p llm.Provider) ([]Choice, error) {
	if rt.Choices == nil {
		return []Choice{{Provider: p}}, nil
	}
	all, err := rt.Choices(p)
	if err != nil {
		return nil, err
	}
	return all, nil
}

// afford fails if a budget of money could not be kept with one of the models, because
// nothing would say what a call costs. Without a list of models the first answer tells.
func (m *completion) afford() error {
	m.st.ex.mu.Lock()
	limit := m.st.ex.account.Limit.MicroUSD
	m.st.ex.mu.Unlock()
	if own := m.c.account; own != nil {
		limit = max(limit, own.Limit.MicroUSD)
	}
	if limit == 0 || m.st.ex.rt.Choices == nil {
		return nil
	}
	for i := range m.choices {
		if c := &m.choices[i]; c.Cost == "" {
			return (journal.Account{Limit: run.Budget{MicroUSD: limit}, Unpriced: c.String()}).Check()
		}
	}
	return nil
}

// usable returns why the choice cannot answer the request, nil if it can.
func (m *completion) usable(c *Choice) error {
	n := llm.Estimate(m.size)
	if c.Context > 0 && n > c.Context/2 { // near it, and bytes may be a third wrong
		n = m.input()
	}
	switch {
	case c.Embeds:
		return &llm.Error{Code: llm.CodeInvalidRequest, Message: fmt.Sprintf("model %s makes vectors of texts and answers nothing; name another", c)}
	case c.NoTools && len(m.c.tools) > 0:
		return &llm.Error{Code: llm.CodeInvalidRequest, Message: fmt.Sprintf("model %s cannot call tools, and the agent has some; name another, or write \"can: [tools]\" into the node's list if it can", c)}
	case c.Context > 0 && n*9/10 > c.Context: // by our count, and surely
		return &llm.Error{Code: llm.CodeContextLength, Message: fmt.Sprintf("model %s takes %d tokens, and the request has about %d", c, c.Context, n)}
	}
	return nil
}

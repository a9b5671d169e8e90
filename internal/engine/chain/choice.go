package chain

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/rathcluster/rath/internal/models/limiter"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// Choice is a model that a call may ask.
type Choice struct {
	Name     string // in the node's list; "" for a model outside of the list
	Provider llm.Provider
	// Cost is the source of the cost of calls, as in journal.StepCompleted; "" if the
	// cost is unknown. Price, in micro-USD, is needed for "priced".
	Cost  string
	Price func(session.Usage) int64
	// Prices is the date of the prices.
	Prices string
	// Context is the maximum number of tokens in a request; 0 is unknown.
	Context int64
	NoTools bool // it cannot call tools
	Embeds  bool // it makes vectors of texts, and does not answer
	Images  bool // it sees images
	Retries Retries
	// Limiter enforces the limits on requests per minute; nil is no limit.
	Limiter limiter.Limiter
}

// Sources of the cost of a call; see journal.StepCompleted.
const (
	Priced = "priced"
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

// Placed orders the servers of each pool for requests whose prefix has a key: the server
// that has the prefix in its cache first. With rendezvous hashing all nodes agree on the
// order without communication; if a server is removed, only its own prefixes move, spread
// over all others.
func Placed(all []Choice, key string) []Choice {
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

// Bill completes the usage of an answer, and returns the source of its cost.
func (c *Choice) Bill(u *session.Usage) (cost, prices string) {
	switch {
	case u.MicroUSD > 0:
		return stated, ""
	case c.Cost == Priced:
		u.MicroUSD = c.Price(*u)
		return Priced, c.Prices
	case c.Cost == free:
		return free, ""
	}
	return "", ""
}

// Estimate prices the estimated usage of a call.
func (c *Choice) Estimate(u session.Usage) session.Usage {
	if c.Cost == Priced && u.MicroUSD == 0 {
		u.MicroUSD = c.Price(session.Usage{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite})
	}
	return u
}

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

// Placed puts the servers of each pool in the order in which they are asked by requests
// whose prefix has a key: the server that the prefix is cached at first. By rendezvous
// hashing all nodes agree on the order without a word, a server that goes moves its own
// prefixes alone, and they spread over all of the others.
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

// Bill completes the usage of an answer, and returns how its cost is known.
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

// Estimate puts a price to what a call is taken to have used.
func (c *Choice) Estimate(u session.Usage) session.Usage {
	if c.Cost == Priced && u.MicroUSD == 0 {
		u.MicroUSD = c.Price(session.Usage{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite})
	}
	return u
}

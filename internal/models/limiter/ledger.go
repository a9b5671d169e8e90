package limiter

import (
	"encoding/json"
	"slices"
	"time"
)

const (
	// Window is the period of a limit.
	Window = time.Minute
	// Lease is how long a node may use the amount that it leased.
	Lease = 2 * time.Second
	// Slack is added to the window for which used amounts count. A request may reach
	// its server this much later than another one; half of Slack is for the network.
	Slack = 2 * time.Second
	// wantFor is how long the want of a node counts after its last report.
	wantFor = 5 * time.Second
	// parts is the number of parts of a window for which a node counts its usage
	// separately.
	parts = 20
	// portion is the largest part of a limit in one lease; only a single call that
	// needs more gets more. Once half of the limit is used, the largest part is that
	// part of the rest, and a node may take it once per lease time. Where calls have
	// waited for floodFor, all leases of a lease time together get at most pace times
	// the amount that becomes free in it. Without this, a flood would use each minute's
	// amount in its first second and starve later calls of other tenants.
	portion  = 8
	floodFor = 5 * time.Second
	pace     = 1.25
)

// ledger is the shared state of a limit at all nodes.
type ledger struct {
	Grants []grant `json:"grants,omitempty"`
	Wants  []want  `json:"wants,omitempty"`
}

// grant is an amount that a node may use, or has used.
type grant struct {
	Node string `json:"node"`
	// Serial distinguishes the leases of a node. It is 0 once the lease has ended.
	Serial uint64 `json:"serial,omitempty"`
	// At is the start of the lease, or the latest time of the usage, in milliseconds; 0
	// is the time of the entry itself.
	At int64 `json:"at_ms,omitempty"`
	Amount
}

// want records that calls wait at a node.
type want struct {
	Node string `json:"node"`
	At   int64  `json:"at_ms,omitempty"`
	// Since is the time at which the node started to wait.
	Since int64 `json:"since_ms,omitempty"`
	Amount
	// Tenants is the number of waiting calls of each tenant.
	Tenants map[string]int64 `json:"tenants,omitempty"`
}

// terms are the timing parameters of a limit: the constants, or less in tests.
type terms struct{ window, lease, slack time.Duration }

// decode reads the ledger of an entry. An unreadable ledger counts as the whole limit
// until its contents can no longer count.
func decode(e Entry, limit Amount) (l ledger) {
	if len(e.Data) == 0 {
		return l
	}
	if err := json.Unmarshal(e.Data, &l); err != nil {
		l = ledger{Grants: []grant{{Node: "unreadable", Serial: 1, Amount: limit}}}
	}
	at := e.Time.Add(time.Millisecond - 1).UnixMilli()
	for i := range l.Grants {
		if l.Grants[i].At == 0 {
			l.Grants[i].At = at
		}
	}
	for i := range l.Wants {
		if l.Wants[i].At == 0 {
			l.Wants[i].At = at
		}
		if l.Wants[i].Since == 0 {
			l.Wants[i].Since = at
		}
	}
	return l
}

// ends is the time at which a grant stops counting.
func (g *grant) ends(t terms) int64 {
	end := g.At + (t.window + t.slack).Milliseconds()
	if g.Serial != 0 {
		end += t.lease.Milliseconds()
	}
	return end
}

// expire removes the entries that no longer count at now.
func (l *ledger) expire(now int64, t terms) {
	l.Grants = slices.DeleteFunc(l.Grants, func(g grant) bool { return g.At != 0 && g.ends(t) <= now })
	l.Wants = slices.DeleteFunc(l.Wants, func(w want) bool { return w.At != 0 && w.At+wantFor.Milliseconds() <= now })
}

// next is the time at which the first grant stops counting, 0 if there is none.
func (l *ledger) next(t terms) int64 {
	var first int64
	for i := range l.Grants {
		if end := l.Grants[i].ends(t); l.Grants[i].At != 0 && (first == 0 || end < first) {
			first = end
		}
	}
	return first
}

// held is the sum of a node's grants, "" for all nodes.
func (l *ledger) held(node string) (sum Amount) {
	for i := range l.Grants {
		if node == "" || l.Grants[i].Node == node {
			sum = sum.plus(l.Grants[i].Amount)
		}
	}
	return sum
}

// close ends the leases of a node. The lease with the given serial counts with the used
// amount. The node's other leases count as unused, because the node never learned of them.
func (l *ledger) close(node string, serial uint64, used Amount, now int64, t terms) {
	for i := 0; i < len(l.Grants); i++ {
		g := &l.Grants[i]
		if g.Node != node || g.Serial == 0 {
			continue
		}
		if g.Serial != serial || used == (Amount{}) {
			l.Grants = slices.Delete(l.Grants, i, i+1)
			i--
			continue
		}
		if g.At += t.lease.Milliseconds(); g.At > now {
			g.At = 0 // it ends now
		}
		g.Serial, g.Amount = 0, used
	}
}

// use records a node's usage beyond its leases.
func (l *ledger) use(node string, used Amount) {
	if used != (Amount{}) {
		l.Grants = append(l.Grants, grant{Node: node, Amount: used})
	}
}

// returns gives back tokens that a node counted and did not use, from the oldest grants
// first, so that no grant stops counting too early.
func (l *ledger) returns(node string, tokens int64) {
	for tokens > 0 {
		oldest := -1
		for i := range l.Grants {
			if g := &l.Grants[i]; g.Node == node && g.Serial == 0 && g.Tokens > 0 && (oldest < 0 || g.At != 0 && (l.Grants[oldest].At == 0 || g.At < l.Grants[oldest].At)) {
				oldest = i
			}
		}
		if oldest < 0 {
			return
		}
		g := &l.Grants[oldest]
		back := min(tokens, g.Tokens)
		g.Tokens, tokens = g.Tokens-back, tokens-back
	}
}

// join merges the grants that a node used in one part of a window into one, so that an
// entry stays small.
func (l *ledger) join(node string, t terms) {
	part := max((t.window / parts).Milliseconds(), 1)
	seen := map[int64]int{}
	for i := 0; i < len(l.Grants); i++ {
		g := &l.Grants[i]
		if g.Node != node || g.Serial != 0 || g.At == 0 {
			continue
		}
		if first, ok := seen[g.At/part]; ok {
			to := &l.Grants[first]
			to.Amount, to.At = to.plus(g.Amount), max(to.At, g.At)
			l.Grants = slices.Delete(l.Grants, i, i+1)
			i--
			continue
		}
		seen[g.At/part] = i
	}
}

// waits records the waiting calls of a node, or that there are none.
func (l *ledger) waits(w want) {
	l.Wants = slices.DeleteFunc(l.Wants, func(o want) bool {
		if o.Node == w.Node {
			w.Since = o.Since
		}
		return o.Node == w.Node
	})
	if w.Requests > 0 {
		l.Wants = append(l.Wants, w)
	}
}

func (l *ledger) wanted(node string) bool {
	return slices.ContainsFunc(l.Wants, func(w want) bool { return w.Node == node })
}

// weights are the shares of the limit for the tenants waiting at each node. Each tenant
// has the same share.
func (l *ledger) weights() map[string]float64 {
	calls := map[string]int64{}
	for i := range l.Wants {
		for t, n := range l.Wants[i].Tenants {
			calls[t] += n
		}
	}
	out := map[string]float64{}
	for i := range l.Wants {
		for t, n := range l.Wants[i].Tenants {
			if calls[t] > 0 {
				out[l.Wants[i].Node] += float64(n) / float64(calls[t]) / float64(len(calls))
			}
		}
	}
	return out
}

// offer returns the amount that a waiting node may take. The node's want is recorded;
// it needs need for its next call and asks for ask. The offer is empty while less than
// need is free, or while another waiting node has had less of its tenants' shares.
func (l *ledger) offer(node string, need, ask, limit Amount, now int64, t terms) (got Amount, paced, ok bool) {
	need = need.within(limit)
	free := limit.minus(l.held("").within(limit))
	if !free.covers(need) {
		return Amount{}, false, false
	}
	weights := l.weights()
	var wanted Amount
	sum, mine, behind, flood := 0.0, l.held(node).of(limit)/weights[node], false, false
	for i := range l.Wants {
		o := &l.Wants[i]
		sum += weights[o.Node]
		flood = flood || o.Since != 0 && o.Since+floodFor.Milliseconds() <= now
		if o.Node != node {
			wanted = wanted.plus(o.Amount)
			behind = behind || l.held(o.Node).of(limit)/weights[o.Node] < mine
		}
	}
	due := weights[node] / sum
	most := limit.times(1.0 / portion)
	switch paced = true; {
	case flood:
		most = limit.times(pace * float64(t.lease) / float64(t.window) * due)
	case l.held("").of(limit) > 0.5:
		most = free.times(1.0 / portion)
	default:
		paced = false
	}
	ask = ask.least(most).most(need).within(limit)
	if wanted.Requests > 0 && !free.covers(ask.plus(wanted).within(limit)) {
		if behind {
			return Amount{}, false, false
		}
		ask = ask.least(free.times(due)).most(need)
	}
	return ask.least(free), paced, true
}

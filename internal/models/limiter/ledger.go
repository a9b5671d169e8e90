package limiter

import (
	"encoding/json"
	"slices"
	"time"
)

const (
	// Window is the time for which a limit holds.
	Window = time.Minute
	// Lease is how long a node may use what it took.
	Lease = 2 * time.Second
	// Slack is how much longer than a window what was used counts: a request may come to
	// its server so much later than another one, of which half is for the way.
	Slack = 2 * time.Second
	// wantFor is how long a node that waits is taken into account after it said so.
	wantFor = 5 * time.Second
	// parts is in how many parts of a window a node keeps apart what it used.
	parts = 20
	// portion is the part of a limit that one lease has at most, and more only if one
	// call needs it. Once half of the limit is used it is that part of what is left, and a
	// node takes it once in the time of a lease. Where calls have waited for floodFor all
	// leases of that time have at most pace times what comes free in it. Else a flood would
	// use each minute's amount in its first second, and a call that comes later, of another
	// tenant, find nothing.
	portion  = 8
	floodFor = 5 * time.Second
	pace     = 1.25
)

// ledger is what all nodes know of a limit.
type ledger struct {
	Grants []grant `json:"grants,omitempty"`
	Wants  []want  `json:"wants,omitempty"`
}

// grant is what a node may use, or has used.
type grant struct {
	Node string `json:"node"`
	// Serial tells the leases of a node apart. It is 0 once the lease has ended.
	Serial uint64 `json:"serial,omitempty"`
	// At is when the lease began, or when what was used was used at the latest, in
	// milliseconds; 0 is the time of the entry itself.
	At int64 `json:"at_ms,omitempty"`
	Amount
}

// want says that calls wait at a node.
type want struct {
	Node string `json:"node"`
	At   int64  `json:"at_ms,omitempty"`
	// Since is when the node began to wait.
	Since int64 `json:"since_ms,omitempty"`
	Amount
	// Tenants are how many calls of each wait.
	Tenants map[string]int64 `json:"tenants,omitempty"`
}

// terms are what holds for a limit: the constants, or less in tests.
type terms struct{ window, lease, slack time.Duration }

// decode reads the ledger of an entry. One that cannot be read counts as the whole limit,
// until what it says cannot count any more.
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

// ends is when a grant does not count any more.
func (g *grant) ends(t terms) int64 {
	end := g.At + (t.window + t.slack).Milliseconds()
	if g.Serial != 0 {
		end += t.lease.Milliseconds()
	}
	return end
}

// expire takes out what does not count any more at a time.
func (l *ledger) expire(now int64, t terms) {
	l.Grants = slices.DeleteFunc(l.Grants, func(g grant) bool { return g.At != 0 && g.ends(t) <= now })
	l.Wants = slices.DeleteFunc(l.Wants, func(w want) bool { return w.At != 0 && w.At+wantFor.Milliseconds() <= now })
}

// next is when the first grant stops counting, 0 if there is none.
func (l *ledger) next(t terms) int64 {
	var first int64
	for i := range l.Grants {
		if end := l.Grants[i].ends(t); l.Grants[i].At != 0 && (first == 0 || end < first) {
			first = end
		}
	}
	return first
}

// held is what counts of a node, "" for all.
func (l *ledger) held(node string) (sum Amount) {
	for i := range l.Grants {
		if node == "" || l.Grants[i].Node == node {
			sum = sum.plus(l.Grants[i].Amount)
		}
	}
	return sum
}

// close ends the leases of a node: of that with the serial used was used, and of others
// nothing, whose node did not learn that it had them.
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

// use notes what a node used beyond its leases.
func (l *ledger) use(node string, used Amount) {
	if used != (Amount{}) {
		l.Grants = append(l.Grants, grant{Node: node, Amount: used})
	}
}

// returns takes tokens back that a node counted and did not use, the oldest first: so none
// counts shorter than it has to.
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

// join makes one grant of those that a node used in one part of a window, so that an entry
// stays small.
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

// waits notes that calls wait at a node, or that none does.
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

// weights are the parts of the limit that the tenants waiting at each node are due. Each
// tenant is due the same.
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

// offer is what a node may take that waits, as waits noted, needs one amount for its next
// call and asks for another one. It is nothing while there is less than it needs, or while
// another node that waits has had less of what its tenants are due.
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

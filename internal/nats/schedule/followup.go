package schedule

import (
	"slices"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
)

// followUps are those of one commit that nothing has settled. Only its sequence and
// their places are stored: what they are is derived from the commit.
type followUps struct {
	Token uint64 `json:"token"`
	Open  []int  `json:"open"` // places, see derive

	session *openSession
	items   []*followUp // nil until the commit was read
	again   *alarm
	tries   backoff
}

// followUp is one thing that follows from a commit: one of begin, signal and
// result is set.
type followUp struct {
	of    *followUps
	place int
	// before is set for one that may have been settled by a former relay.
	before bool

	begin  *item // the first dispatch of a branch
	signal *journal.Signal
	result *messages.Result

	tick *openSession // of a tick, which belongs to no commit

	busy  bool // an action for it is under way
	over  bool // settled
	again *alarm
	tries backoff
}

// derive returns the follow-ups of a commit in an order that is always the
// same. Runs that its own session offers are not among them: the state of the
// session says them.
func derive(e commitlog.Entry, facts []journal.Fact) ([]*followUp, error) {
	work, err := journal.Followups(e, facts)
	var out []*followUp
	add := func(f *followUp) {
		f.place = len(out)
		out = append(out, f)
	}
	for _, w := range work {
		switch {
		case w.Signal != nil:
			add(&followUp{signal: w.Signal})
		case w.Task != nil && !w.Task.Resume:
			add(&followUp{begin: &item{task: *w.Task, derived: true}})
		}
	}
	for _, r := range translate.Results(e, facts) {
		add(&followUp{result: &r})
	}
	for _, r := range translate.Settlements(facts) {
		add(&followUp{result: &r})
	}
	return out, err
}

// later reports whether nothing waits for a follow-up, so that it does not go
// before what a caller waits for: the results of branches, of which their
// parents have reports, and the closing of branches that were disposed of.
func (f *followUp) later() bool {
	if f.signal != nil {
		return f.signal.Close != nil
	}
	return f.result != nil && f.of != nil && string(f.result.Run) == string(f.of.session.Session)
}

// settle takes a follow-up off its commit.
func (o *followUps) settle(f *followUp) {
	f.over = true
	o.Open = slices.DeleteFunc(o.Open, func(i int) bool { return i == f.place })
}

// settled takes a commit off its session: nothing follows from it any more.
func (s *openSession) settled(d *followUps) {
	s.FollowUps = slices.DeleteFunc(s.FollowUps, func(x *followUps) bool { return x == d })
}

// Bounds of what is under way at the same time, per partition.
const (
	dispatchesAtOnce = 256
	signalsAtOnce    = 64
	laterAtOnce      = 4
	resultsAtOnce    = 32
	looksAtOnce      = 16
)

// Pauses between attempts.
const (
	// overdue is when a dispatch that no log shows is sent to another node.
	overdue = time.Second
	// restFirst and restMost pace a run that was refused, or whose claim is not
	// seen.
	restFirst = 100 * time.Millisecond
	restMost  = 10 * time.Second
	// crowdedMost bounds the pause of a run that all nodes are too crowded for,
	// clearingMost the time that one may take to make room for it.
	crowdedMost  = time.Second
	clearingMost = 40 * time.Second
	// signalFirst and signalMost pace what no answer has settled.
	signalFirst = time.Second
	signalMost  = time.Hour
	// resultMost paces results: a stream that is full for long gets room again.
	resultMost = 30 * time.Second
	// tickFirst and tickMost pace what is due: the clock of the node that took it
	// may be behind.
	tickFirst  = time.Second
	tickMost   = 30 * time.Second
	tickMargin = 20 * time.Millisecond
	// placeFresh is how long the pool of a workflow is believed.
	placeFresh = 5 * time.Second
	placeFirst = time.Second
	placeMost  = 30 * time.Second
	// holdersEvery is how often it is asked whether holders live, apart from news.
	holdersEvery = 10 * time.Second
)

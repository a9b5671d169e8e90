package schedule

import (
	"slices"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
)

// followUps are the unsettled follow-ups of one commit. Only the commit's sequence and
// their places are stored: the follow-ups are derived from the commit.
type followUps struct {
	Token uint64 `json:"token"`
	Open  []int  `json:"open"` // places, see derive

	session *openSession
	items   []*followUp // nil until the commit was read
	again   *alarm
	tries   backoff
}

// followUp is one follow-up of a commit: one of begin, signal, submit and result is set.
type followUp struct {
	of    *followUps
	place int
	// before is set for a follow-up that a former relay may have settled.
	before bool

	begin  *item // the first dispatch of a branch
	signal *journal.Signal
	submit *journal.Task
	result *messages.Result

	tick *openSession // of a tick, which belongs to no commit

	busy  bool // an action for it is in progress
	over  bool // settled
	again *alarm
	tries backoff
}

// derive returns the follow-ups of a commit in an order that is always the same. Runs that
// its own session offers are not among them: they follow from the state of the session.
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
		case w.Submit != nil:
			add(&followUp{submit: w.Submit})
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

// later reports whether no caller waits for a follow-up, so that it yields to follow-ups
// with a waiting caller: the results of branches, of which their parents have reports, and
// the closing of disposed branches.
func (f *followUp) later() bool {
	if f.signal != nil {
		return f.signal.Close != nil
	}
	return f.result != nil && f.of != nil && string(f.result.Run) == string(f.of.session.Session)
}

// settle removes a follow-up from its commit.
func (o *followUps) settle(f *followUp) {
	f.over = true
	o.Open = slices.DeleteFunc(o.Open, func(i int) bool { return i == f.place })
}

// settled removes the follow-ups of a commit from its session.
func (s *openSession) settled(d *followUps) {
	s.FollowUps = slices.DeleteFunc(s.FollowUps, func(x *followUps) bool { return x == d })
}

// Bounds of concurrent actions, per partition.
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
	// crowdedMost bounds the pause of a run for which all nodes are too crowded,
	// clearingMost the time that a node may take to make room for it.
	crowdedMost  = time.Second
	clearingMost = 40 * time.Second
	// signalFirst and signalMost pace signals that no answer has settled.
	signalFirst = time.Second
	signalMost  = time.Hour
	// resultMost paces results: even a stream that is full for long gets room again.
	resultMost = 30 * time.Second
	// tickFirst and tickMost pace due ticks: the clock of the node that received one may be
	// behind.
	tickFirst  = time.Second
	tickMost   = 30 * time.Second
	tickMargin = 20 * time.Millisecond
	// placeFresh is how long the pool of a workflow is believed.
	placeFresh = 5 * time.Second
	placeFirst = time.Second
	placeMost  = 30 * time.Second
	// holdersEvery is how often holders are checked for life, apart from news.
	holdersEvery = 10 * time.Second
)

// action returns the action that carries a follow-up out. The beginning of a branch that a
// former relay may have started is looked up: from its first commit on the relay of the
// branch's own partition is responsible.
func (f *followUp) action() Action {
	switch {
	case f.begin != nil:
		return Action{Kind: Look, Session: f.begin.task.Session}
	case f.result != nil:
		return Action{Kind: Store, Tenant: f.of.session.Tenant, Result: f.result, Before: f.before}
	case f.submit != nil:
		return Action{Kind: Submit, Work: journal.Work{Submit: f.submit}}
	}
	return Action{Kind: Signal, Work: journal.Work{Signal: f.signal}}
}

package schedule

import (
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// Kind is the kind of an action.
type Kind uint8

// The kinds of actions. The driver answers each except Announce with [Scheduler.Done].
const (
	Dispatch Kind = iota // send the task of Work to Node: any of them
	Announce             // send Node the Demand; it has no answer
	Signal               // apply the signal of Work: Settled or Failed
	Store                // store Result: Settled or Failed
	Submit               // submit the task of Work.Submit: Settled or Failed
	Look                 // does the log of Session exist: Outcome.Found, or Failed
	Load                 // read the commit at Token: Outcome.Entry, or Failed
	Ping                 // does Node live: Outcome.Found
	Place                // request the pools that offer Tenant the Workflow in Revision: Outcome.Pools, or Failed
)

// Action is something that the driver carries out. It does so beside others and
// in any order, and never lets the scheduler wait.
type Action struct {
	ID       uint64
	Kind     Kind
	Node     string       // an incarnation
	Work     journal.Work // with Task.Seen
	Grant    uint64       // the granted slot that a Dispatch uses or an Announce returns; zero for none
	Demand   *Demand      // the demand for the node's slots from now on; nil leaves it unchanged
	Tenant   session.Tenant
	Result   *messages.Result
	Before   bool // the Result may be stored already
	Session  session.Key
	Token    uint64
	Workflow string
	Revision string
}

// Result is the result of an action.
type Result uint8

// The results of actions.
const (
	Failed     Result = iota // it may succeed later
	Settled                  // it is done, or no longer needed
	Busy                     // the node has no slot
	NotOffered               // the node does not offer the workflow, in that revision
	Silent                   // the node did not answer in time
	Gone                     // no such node listens, or it accepts no more runs
	Crowded                  // the node executes too much for this run, with which others died
	Clearing                 // the node accepts no other run until it claims this one, or gives it up
)

// Outcome is the outcome of an action.
type Outcome struct {
	Result Result
	Free   int              // slots of the node after a Dispatch; negative is not known
	Found  bool             // of a Look and a Ping
	Entry  *commitlog.Entry // of a Load; nil if the commit no longer exists
	Pools  []Pool           // of a Place: at least one, the preferred one first
}

// Pool is a pool that offers a workflow.
type Pool struct {
	Name  string
	Batch bool // the workflow's class there
}

// actions are the actions to be carried out, and the subjects of their outcomes.
type actions struct {
	idle  bool // while commits are history: no action is sent
	last  uint64
	asked map[uint64]any // *followUp, *followUps, *holder, *group
	out   []Action
}

// ask adds an action whose outcome belongs to v.
func (s *actions) ask(v any, a Action) {
	s.last++
	a.ID = s.last
	s.asked[a.ID] = v
	s.out = append(s.out, a)
}

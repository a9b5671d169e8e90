package schedule

import (
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// Kind says what an action is.
type Kind uint8

// The kinds of actions. The driver answers each but Tell with [Scheduler.Done].
const (
	Dispatch Kind = iota // send the task of Work to Node: any of them
	Announce             // tell Node the Demand; nothing answers
	Signal               // apply the signal of Work: Settled or Failed
	Store                // store Result: Settled or Failed
	Look                 // does the log of Session exist: Outcome.Found, or Failed
	Load                 // read the commit at Token: Outcome.Entry, or Failed
	Ping                 // does Node live: Outcome.Found
	Place                // which pools offer Tenant the Workflow in Revision: Outcome.Pools, or Failed
)

// Action is something that the driver carries out. It does so beside others and
// in any order, and never lets the scheduler wait.
type Action struct {
	ID       uint64
	Kind     Kind
	Node     string       // an incarnation
	Work     journal.Work // with Task.Seen
	Grant    uint64       // the granted slot that a Dispatch takes or a Tell gives back; zero for none
	Demand   *Demand      // what waits for the node from now on; nil leaves it as it is
	Tenant   session.Tenant
	Result   *messages.Result
	Before   bool // the Result may be stored already
	Session  session.Key
	Token    uint64
	Workflow string
	Revision string
}

// Result says what became of an action.
type Result uint8

// The results of actions.
const (
	Failed     Result = iota // it may succeed later
	Settled                  // it is done, or needs to be done no more
	Busy                     // the node has no slot
	NotOffered               // the node does not offer the workflow, in that revision
	Silent                   // the node did not answer in time
	Gone                     // no such node listens, or it takes nothing more
	Crowded                  // too much executes at the node for this run, which others died with
	Clearing                 // the node takes nothing else until it claims this run, or gives that up
)

// Outcome is what became of an action.
type Outcome struct {
	Result Result
	Free   int              // slots of the node after a Dispatch; negative is not known
	Found  bool             // of a Look and a Ping
	Entry  *commitlog.Entry // of a Load; nil if the commit is not there any more
	Pools  []Pool           // of a Place: at least one, the preferred one first
}

// Pool is one that offers a workflow.
type Pool struct {
	Name  string
	Batch bool // the workflow's class there
}

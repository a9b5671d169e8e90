package journal

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// The events of a run, in the log of its home session. KindClaimed is also in
// the log of every other session that the run writes to.
const (
	KindSubmitted        = "run.submitted"
	KindClaimed          = "run.claimed"
	KindReleased         = "run.released"
	KindReview           = "run.review"
	KindResolved         = "run.resolved"
	KindCancel           = "run.cancel_requested"
	KindWarning          = "run.warning"
	KindEnded            = "run.ended"
	KindRunWaiting       = "run.waiting"  // it stopped until something comes
	KindSignalReceived   = "run.received" // something came from outside
	KindFanOut           = "run.fanout"   // it opened branches that run on their own
	KindBranchesReleased = "run.spread"   // the other branches of a warm-first fan-out begin
	KindCacheWarmed      = "run.warmed"   // the branch that the others wait for has its first answer
	KindBranchOutcomes   = "run.disposed" // how such branches ended for it

	KindQuarantined = "run.quarantined" // the session was quarantined, or released
	KindRebudgeted  = "run.rebudgeted"  // a run has another budget now
	KindSettled     = "run.settled"     // the log of a fork or of a branch reported more usage of a run
)

// The events of a step.
const (
	KindStepStarted   = "step.intent"
	KindStepCompleted = "step.done"
	KindLate          = "step.late" // an outcome that is no step, of a superseded attempt or a call left open
)

// KindWriter opens the first commit of a writer's incarnation.
const KindWriter = "writer.opened"

// Schema is the schema number of the events of this package.
const Schema = 1

// Named says who asked for something: by is the user whose credentials the server
// checked or, of a branch, the run around it, and says who the request claims to be
// from. It is "" if neither is known.
func Named(by, says string) string {
	switch {
	case says == "" || says == by:
		return by
	case by == "":
		return "an unproved sender (says to be " + says + ")"
	}
	return by + " (says to be " + says + ")"
}

// Edition counts the releases that added optional fields to the data of events.
// A change that adds one after a release counts it up, so that an auditor of a former
// release can tell fields that it does not know from mistakes. It says nothing
// about meanings: another one is another schema number.
const Edition = 0

// DefaultDurability is the level of commits that no event says one of: an
// acknowledged commit survives the loss of power of every machine.
const DefaultDurability = "fsync"

// WriterOpened says who writes from here on, in which Edition, and what its
// commits survive.
type WriterOpened struct {
	// Durability is the level that the writer's node promises up to the next
	// event of this kind; "" is DefaultDurability.
	Durability  string `json:"durability,omitempty"`
	Edition     uint64 `json:"edition,omitempty"`
	Epoch       uint64 `json:"epoch"`
	Incarnation string `json:"incarnation"`
}

// Submitted records a task. Behind names the run that it waits for, if any.
type Submitted struct {
	Behind run.ID `json:"behind,omitempty"`
	// By is the user who submitted the task, whose credentials the server checked. A run
	// that follows from another one has the By of that one. No digest counts it in.
	By     string   `json:"by,omitempty"`
	Digest string   `json:"digest"`
	Task   wireTask `json:"task"`
	// Via is, of a task that was submitted again, the user who asked for that; of a branch,
	// the run that opened it.
	Via string `json:"via,omitempty"`
}

// Claimed records that an attempt of a run began.
type Claimed struct {
	Attempt uint64 `json:"attempt"`
	// Death is how the node of the attempt before ended, of a suspect, see Claim.
	Death string `json:"death,omitempty"`
	Epoch uint64 `json:"epoch"`
	// Group is how many suspects the node executes at most until the attempt records a
	// step, this one included: 1 is alone. It is absent from the claim of what is none.
	Group       uint64      `json:"group,omitempty"`
	Home        session.Key `json:"home"`
	Incarnation string      `json:"incarnation"`
	Revision    string      `json:"revision,omitempty"`
	Run         run.ID      `json:"run"`
	// Seen is the attempt before, of a claim that follows from a dispatch: what the
	// relay saw of the run. A first attempt has none.
	Seen     uint64 `json:"seen,omitempty"`
	Workflow string `json:"workflow,omitempty"`
}

// Released records that an attempt gave the run back or, in the log of a
// session that is not the run's home, that the run needs it no more.
type Released struct {
	Attempt uint64 `json:"attempt"`
	// Lost is what a call is taken to have used that was cut off with the
	// attempt; see Done.
	Lost     session.Usage `json:"lost,omitzero"`
	Next     *Offer        `json:"next,omitempty"` // the queued run that is promoted
	Reason   string        `json:"reason"`
	Revision string        `json:"revision,omitempty"`
	Run      run.ID        `json:"run"`
	Step     run.Path      `json:"step,omitempty"`     // where the code did not match
	Workflow string        `json:"workflow,omitempty"` // to offer the run again
}

// Review records why a run stopped for a person.
type Review struct {
	Attempt uint64   `json:"attempt"`
	Call    string   `json:"call,omitempty"`
	Code    run.Code `json:"code"`
	Expires int64    `json:"expires,omitempty"` // Unix milliseconds: the run fails then
	Name    string   `json:"name,omitempty"`    // of the tool
	Path    run.Path `json:"path,omitempty"`
	Reason  string   `json:"reason"`
	// Revision is the one that the step was recorded under, if the code does
	// not match it.
	Revision string `json:"revision,omitempty"`
	Run      run.ID `json:"run"`
}

// Resolved records a person's decision on a review.
type Resolved struct {
	By       string   `json:"by,omitempty"` // see Named
	Decision string   `json:"decision"`
	ID       string   `json:"id,omitempty"` // of the signal that brought it, see Received
	Path     run.Path `json:"path,omitempty"`
	Reason   string   `json:"reason"`
	Revision string   `json:"revision,omitempty"`
	Run      run.ID   `json:"run"`
	Says     string   `json:"says,omitempty"`
	Value    string   `json:"value,omitempty"`
	Workflow string   `json:"workflow,omitempty"`
}

// CancelRequested records that a run shall stop.
type CancelRequested struct {
	By     string `json:"by,omitempty"`    // see Named
	Close  string `json:"close,omitempty"` // how the session of a branch is closed with its end
	ID     string `json:"id,omitempty"`    // of the signal that brought it, see Received
	Reason string `json:"reason"`
	Run    run.ID `json:"run"`
	Says   string `json:"says,omitempty"`
	// Settle is, in the log of a fork, the home of the run, to which the end here reports
	// what the run used here; see Ended.
	Settle session.ID `json:"settle,omitempty"`
}

// Warning tells the author of a workflow something about a run.
type Warning struct {
	Run  run.ID `json:"run"`
	Text string `json:"text"`
}

// Ended records how a run ended, all that a result needs and what follows.
type Ended struct {
	Attempt  uint64        `json:"attempt"`
	Branches []session.ID  `json:"branches,omitempty"` // of fan-outs, still open; they are cancelled
	Children []session.ID  `json:"children,omitempty"` // that it made; those that are open are cancelled
	Code     run.Code      `json:"code,omitempty"`
	Error    string        `json:"error,omitempty"`
	Finish   string        `json:"finish,omitempty"` // of the last answer to an agent of the run's own execution, as in StepCompleted
	Word     string        `json:"finish_word,omitempty"`
	Head     blob.Digest   `json:"head,omitzero"`  // of the session's files after it
	Lost     session.Usage `json:"lost,omitzero"`  // the part of Usage that is estimated, see StepCompleted and Reservations
	Next     *Offer        `json:"next,omitempty"` // the queued run that is promoted
	Output   string        `json:"output,omitempty"`
	Parent   *Ancestor     `json:"parent,omitempty"` // who is told how a branch ended
	Result   *session.Link `json:"result,omitempty"`
	Run      run.ID        `json:"run"`
	// Settle is the home of the run if Usage lacks the steps in the logs of Children: the
	// run ended without its execution, and their ends report to that log. See Settled.
	Settle session.ID `json:"settle,omitempty"`
	State  run.State  `json:"state"`
	Steps  int64      `json:"steps,omitempty"` // of the run and its branches, as Usage counts them
	// Unrecorded is the part of Usage of model calls whose steps were not recorded,
	// because the end of the run came before.
	Unrecorded session.Usage   `json:"unrecorded,omitzero"`
	Usage      session.Usage   `json:"usage,omitzero"`
	Version    session.Version `json:"version,omitempty"` // of the session after it
	Workflow   string          `json:"workflow"`
}

// MaxOutput is how many bytes of the last assistant text a result carries.
const MaxOutput = 16 << 10

// Offer names a run for the nodes that could claim it.
type Offer struct {
	Revision string `json:"revision,omitempty"`
	Run      run.ID `json:"run"`
	Workflow string `json:"workflow"`
}

// StepStarted records, before it starts, a call whose effect must not happen twice.
type StepStarted struct {
	Attempt uint64   `json:"attempt"`
	Call    string   `json:"call"`
	Expires int64    `json:"expires"` // Unix milliseconds: not started after this
	Input   string   `json:"input"`
	Name    string   `json:"name"`
	Path    run.Path `json:"path"`
	Run     run.ID   `json:"run"`
}

// The kinds of steps.
const (
	StepModel     = "model"
	StepTool      = "tool"
	StepDo        = "do"
	StepFork      = "fork"
	StepDetach    = "detach"
	StepJoin      = "join"
	StepReject    = "reject"
	StepRecall    = "recall"
	StepRemember  = "remember"
	StepOpen      = "open" // a sandbox
	StepCompress  = "compress"
	StepSelection = "selection"
	StepFanOut    = "fanout"
	StepGather    = "gather" // takes in how the branches of a fan-out ended
	StepAwait     = "await"
)

// The origins, as Agent, of user rows that no user said and that are no agent's summary.
const (
	ByWorkspace = "workspace" // what its files say for agents
	ByHook      = "hook"      // why an agent is not done
)

// Why a model is asked on after an answer, as StepCompleted.Again.
const (
	AgainCut     = "cut"     // at the limit of its length: the next answer continues it
	AgainPaused  = "paused"  // by the server: likewise
	AgainEmpty   = "empty"   // no text and no calls
	AgainMissing = "missing" // it announces calls and has none
	AgainText    = "text"    // a call is written as text
	AgainCalls   = "calls"   // its calls are cut: each has a result that reports it
	AgainShort   = "short"   // of a summary: too short for the text that it replaces
)

// StepCompleted records a step's outcome, value or error.
type StepCompleted struct {
	// Again is why the model is asked on after its answer, such as AgainCut; "" is an
	// answer that is taken, or that ends the agent with a Code. The text of an answer that
	// is no row is in Value, as Partial.
	Again string `json:"again,omitempty"`
	// Asks is what a tool's call asked a person, and ended with. The call is made again
	// below its path, with the answer.
	Asks    *Asked   `json:"asks,omitempty"`
	Attempt uint64   `json:"attempt"`
	Call    string   `json:"call,omitempty"`
	Code    run.Code `json:"code,omitempty"`
	// Cost is how the money in Usage is known, of a model's call: "priced" from the tokens
	// and the node's list of models, "stated" by the server, or "free"; "" if it is not.
	Cost    string `json:"cost,omitempty"`
	Effect  string `json:"effect,omitempty"`
	Elapsed int64  `json:"elapsed,omitempty"` // milliseconds
	Error   string `json:"error,omitempty"`
	Failed  bool   `json:"failed,omitempty"` // a tool's body reports a failure
	// Finish is why a model's answer ended, as llm.Finish, and Word the server's own word for
	// it where that is none of its protocol's.
	Finish string `json:"finish,omitempty"`
	Word   string `json:"finish_word,omitempty"`
	// HeadBefore and HeadAfter are the workspace's around a call that may
	// change it.
	HeadAfter  blob.Digest `json:"head_after,omitzero"`
	HeadBefore blob.Digest `json:"head_before,omitzero"`
	// Images are those of a tool's result, until its row is there.
	Images []session.Image `json:"images,omitempty"`
	// Inbox is up to which place the step took messages out of the run's inbox.
	Inbox uint64 `json:"inbox,omitempty"`
	Input string `json:"input"` // digest of what was asked
	// Instructions are of a model's call; nil is none.
	Instructions *Instructions `json:"instructions,omitempty"`
	Kind         string        `json:"kind"`
	// Links are the sessions that a fork, a join or a rejection names.
	Links []session.Link `json:"links,omitempty"`
	// Lost is the part of Usage that calls are taken to have used which were
	// cut off before they ended, or whose server counts no tokens: an estimate,
	// because no server says it.
	Lost  session.Usage `json:"lost,omitzero"`
	Model string        `json:"model,omitempty"`
	Name  string        `json:"name"`
	// Named is the model's name in the node's list, and Passed are the models before it
	// in its chain that came to nothing.
	Named  string        `json:"named,omitempty"`
	Passed []PassedModel `json:"passed,omitempty"`
	Path   run.Path      `json:"path"`
	// Prices is the day of the prices that a "priced" Cost follows from.
	Prices string      `json:"prices,omitempty"`
	Prompt blob.Digest `json:"prompt,omitzero"` // of the rendered request
	// Requests are those that commands made over the network of their sandbox.
	Requests []NetworkRequest `json:"requests,omitempty"`
	Revision string           `json:"revision,omitempty"`
	// Row reports that the outcome is the chunk that the same batch adds, so
	// that nothing is stored twice.
	Row bool   `json:"row,omitempty"`
	Run run.ID `json:"run"`
	// Services is what services wrote beside a call, since the call before.
	Services []ServiceLog `json:"services,omitempty"`
	Source   string       `json:"source,omitempty"` // file:line of an implicit fork
	Steps    int64        `json:"steps,omitempty"`  // of the branches whose ends it takes in
	Summary  string       `json:"summary,omitempty"`
	// Unlisted counts the requests over the network that Requests leaves out.
	Unlisted int           `json:"unlisted,omitempty"`
	Usage    session.Usage `json:"usage,omitzero"`
	Value    string        `json:"value,omitempty"` // JSON text
}

// FinishText is for people: why the answer of a model ended, "" without one.
func FinishText(finish, word string) string {
	if finish == "" {
		return ""
	}
	if word != "" {
		word = fmt.Sprintf(", in the server's word %q", word)
	}
	return "finish " + finish + word
}

// Instructions name the blobs that a model's request was made of beside the rows of the
// session. Credentials are masked in them. A zero digest is none.
type Instructions struct {
	Ask    blob.Digest `json:"ask,omitzero"`    // the last message, which is no row
	Notes  blob.Digest `json:"notes,omitzero"`  // the notes that the agent recalled, as the step of the recall names them
	Prompt blob.Digest `json:"prompt,omitzero"` // the system message
	Remark blob.Digest `json:"remark,omitzero"` // the last message, which asks the model on after an answer that is no row
	Tools  blob.Digest `json:"tools,omitzero"`  // JSON: name, description and schema of each tool
}

// Partial is a model's answer that is no row: the model was asked on, or it ended the agent.
type Partial struct {
	Calls  []session.ToolCall `json:"calls,omitempty"`
	Opaque string             `json:"opaque,omitempty"`
	Text   string             `json:"text,omitempty"`
}

// ServiceLog is the end of what a service wrote.
type ServiceLog struct {
	Log  string `json:"log"`
	More int64  `json:"more,omitempty"` // bytes before it
	Name string `json:"name"`
}

// CostSource says how the money in Usage is known, in one word or, of what is priced, with
// the day of the prices; "" if it is not.
func (d *StepCompleted) CostSource() string {
	if d.Prices != "" {
		return d.Cost + " " + d.Prices
	}
	return d.Cost
}

// Unpriced returns the model of a call whose cost nothing says, "" without one.
func (d *StepCompleted) Unpriced() string {
	used := d.Usage
	if d.Code != "" { // what was lost had no answer to say it
		used = used.Sub(d.Lost)
	}
	if used.Calls == 0 || used.Tokens() == 0 || used.MicroUSD > 0 || d.Cost != "" || d.Kind == StepGather || d.Kind == StepJoin {
		return ""
	}
	return cmp.Or(d.Named, d.Model, "without a name")
}

// Asked is a question of a tool's call: for a yes or a no, and with a yes for values that
// match a schema.
type Asked struct {
	Message string `json:"message"`
	Schema  string `json:"schema,omitempty"` // JSON text; "" takes any object
}

// PassedModel is a model that another one took the place of.
type PassedModel struct {
	Code run.Code `json:"code"` // why
	Name string   `json:"name"` // in the node's list
}

// NetworkRequest is what a command asked of a host.
type NetworkRequest struct {
	Host     string `json:"host"`
	Method   string `json:"method"`
	Path     string `json:"path,omitempty"`     // with its query, clipped
	Received int64  `json:"received,omitempty"` // bytes of the answer's body
	Refused  string `json:"refused,omitempty"`  // why the proxy did not carry it out
	Sent     int64  `json:"sent,omitempty"`     // bytes of the request's body
	Status   int    `json:"status,omitempty"`   // of the answer; zero if there was none
}

// Late records an outcome that arrived from a superseded attempt, or the requests over the
// network of a call that was cut off and left open: evidence, and no step.
type Late StepCompleted

// NewEvent encodes a payload of this package under its kind. The batch is
// empty for everything but the events of steps. The payload belongs to the event from
// the call on: nothing that it points to changes.
func NewEvent(kind string, payload any) (session.Event, error) {
	data, err := canonical.Marshal(payload)
	if err != nil {
		return session.Event{}, fmt.Errorf("journal: %s: %w", kind, err)
	}
	e := session.Event{Kind: kind, Schema: Schema, Data: data}
	switch payload.(type) {
	case Submitted, WriterOpened, Claimed, StepStarted, StepCompleted, Ended: // nearly all that is written
		if !strings.Contains(data, notText) {
			e = e.Of(payload)
		}
	}
	return e, nil
}

// notText is what stands in JSON for bytes that are no text, so that data with it may
// read back as something else.
const notText = "\uFFFD"

// Decode decodes an event's data as T.
func Decode[T any](e session.Event) (T, error) {
	var v T
	if e.Schema != Schema {
		return v, fmt.Errorf("journal: %s has schema %d, this release reads %d: %w", e.Kind, e.Schema, Schema, session.ErrTooOld)
	}
	if made, ok := e.Made().(T); ok {
		return made, nil
	}
	if err := session.Unmarshal(e.Data, &v); err != nil {
		return v, fmt.Errorf("journal: %s: %w", e.Kind, err)
	}
	return v, nil
}

// event is NewEvent for the payloads of this file, which always encode.
func event(kind string, payload any) session.Event {
	e, err := NewEvent(kind, payload)
	if err != nil {
		panic(err)
	}
	return e
}

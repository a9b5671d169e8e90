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

// The events of a run, in the log of its home session. KindClaimed is also in the log
// of all other sessions that the run writes to.
const (
	KindSubmitted        = "run.submitted"
	KindClaimed          = "run.claimed"
	KindReleased         = "run.released"
	KindReview           = "run.review"
	KindResolved         = "run.resolved"
	KindCancel           = "run.cancel_requested"
	KindWarning          = "run.warning"
	KindEnded            = "run.ended"
	KindRunWaiting       = "run.waiting"  // it stopped until its waits are satisfied
	KindSignalReceived   = "run.received" // a signal from outside
	KindFanOut           = "run.fanout"   // it opened branches that run separately
	KindStart            = "run.start"    // it starts an independent run
	KindBranchesReleased = "run.spread"   // the other branches of a warm-first fan-out start
	KindCacheWarmed      = "run.warmed"   // the branch that the others wait for has its first answer
	KindBranchOutcomes   = "run.disposed" // the outcomes of such branches for it

	KindQuarantined = "run.quarantined" // the session was quarantined, or released
	KindRebudgeted  = "run.rebudgeted"  // a change of a run's budget
	KindStatus      = "run.status"      // the progress that the workflow reports
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

// Named describes the sender of a request. by is the user whose credentials the server
// checked or, for a branch, the enclosing run; says is the sender's own claim. Named
// returns "" if both are empty. The claim may end with the gateway that authenticated the
// user, as in "Bob via web/api/k3v9".
func Named(by, says string) string {
	claim, gateway := says, ""
	if i := strings.LastIndex(" "+says, " via web/"); i >= 0 {
		claim, gateway = strings.TrimSuffix(says[:i], " "), ", vouched for by "+says[i+len("via "):]
	}
	switch {
	case claim == "" || claim == by:
		return by + gateway
	case by == "":
		by = "an unproved sender"
	}
	return by + " (says to be " + claim + ")" + gateway
}

// Submitter describes the sender of a task and, if it was submitted again, of the
// repetition, which the claim is of then: see Submitted.
func Submitter(by, via, says string) string {
	if via == "" {
		return Named(by, says)
	}
	return by + ", again by " + Named(via, says)
}

// Edition counts the releases that added optional fields to the data of events. A
// change that adds a field after a release increments it, so that an auditor of an
// earlier release can distinguish unknown fields from mistakes. A change of meaning
// needs a new schema number instead.
const Edition = 0

// DefaultDurability is the level of commits whose writer recorded none: an acknowledged
// commit survives the loss of power of every machine.
const DefaultDurability = "fsync"

// WriterOpened records the writer of the commits from here on, its Edition, and the
// durability of its commits.
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
	// By is the user who submitted the task, whose credentials the server checked. A
	// run that follows from another one inherits its By. No digest includes it.
	By     string `json:"by,omitempty"`
	Digest string `json:"digest"`
	// Limit is the limit that lets the run begin, nil for none. No digest includes it.
	Limit *Limit   `json:"limit,omitempty"`
	Says  string   `json:"says,omitempty"` // the sender's own claim, see Named
	Task  wireTask `json:"task"`
	// Via is, for a resubmitted task, the user who resubmitted it; for a branch, the
	// run that opened it.
	Via string `json:"via,omitempty"`
}

// Awaited records, in the home of a predecessor, that a run waits for its end.
type Awaited struct {
	By      run.ID     `json:"by"`              // the run that waits
	Ended   *RunEnd    `json:"ended,omitempty"` // of Run, if it had ended before
	Run     run.ID     `json:"run"`             // the predecessor
	Session session.ID `json:"session"`         // the home of By
}

// KindAwaited is the kind of Awaited.
const KindAwaited = "run.awaited"

// Claimed records the start of an attempt of a run.
type Claimed struct {
	Attempt uint64 `json:"attempt"`
	// Death is, for a suspect, the way in which the previous attempt's node ended, see
	// Claim.
	Death string `json:"death,omitempty"`
	Epoch uint64 `json:"epoch"`
	// Group is the maximum number of suspects, this one included, that the node
	// executes until the attempt records a step: 1 is alone. The claim of a run that is
	// no suspect has none.
	Group       uint64      `json:"group,omitempty"`
	Home        session.Key `json:"home"`
	Incarnation string      `json:"incarnation"`
	Revision    string      `json:"revision,omitempty"`
	Run         run.ID      `json:"run"`
	// Seen, in a claim that follows from a dispatch, is the previous attempt, as the
	// relay saw it. A first attempt has none.
	Seen     uint64 `json:"seen,omitempty"`
	Workflow string `json:"workflow,omitempty"`
}

// Released records that an attempt released the run or, in the log of a session that is
// not the run's home, that the run no longer needs the session.
type Released struct {
	Attempt uint64 `json:"attempt"`
	// Lost is the estimated usage of a call that was cut off with the attempt; see
	// Done.
	Lost     session.Usage `json:"lost,omitzero"`
	Next     *Offer        `json:"next,omitempty"` // the queued run that is promoted
	Reason   string        `json:"reason"`
	Revision string        `json:"revision,omitempty"`
	Run      run.ID        `json:"run"`
	Step     run.Path      `json:"step,omitempty"`     // where the code did not match
	Workflow string        `json:"workflow,omitempty"` // to offer the run again
}

// Review records the reason why a run waits for an operator's decision.
type Review struct {
	Attempt uint64   `json:"attempt"`
	Call    string   `json:"call,omitempty"`
	Code    run.Code `json:"code"`
	Expires int64    `json:"expires,omitempty"` // Unix milliseconds: the run fails then
	Name    string   `json:"name,omitempty"`    // of the tool
	Path    run.Path `json:"path,omitempty"`
	Reason  string   `json:"reason"`
	// Revision is the revision under which the step was recorded, if the code does not
	// match it.
	Revision string `json:"revision,omitempty"`
	Run      run.ID `json:"run"`
}

// record takes over a request to cancel a run: the first one counts, and whether one
// of them has Force.
func (v CancelRequested) record(r *Record) {
	if r.Cancel != nil {
		force := v.Force
		v = *r.Cancel
		v.Force = v.Force || force
	}
	r.Cancel = &v
}

// cutOff reports whether the run was to end, at a cancel or its deadline, and its code was
// given up during a call with a recorded intent.
func (v *Review) cutOff() bool {
	return v != nil && v.Path != "" && (v.Code == run.CodeCancelled || v.Code == run.CodeDeadline)
}

// Resolved records an operator's decision on a review.
type Resolved struct {
	By       string   `json:"by,omitempty"` // see Named
	Decision string   `json:"decision"`
	ID       string   `json:"id,omitempty"` // of the signal, see SignalReceived
	Path     run.Path `json:"path,omitempty"`
	Reason   string   `json:"reason"`
	Revision string   `json:"revision,omitempty"`
	Run      run.ID   `json:"run"`
	Says     string   `json:"says,omitempty"`
	Value    string   `json:"value,omitempty"`
	Workflow string   `json:"workflow,omitempty"`
}

// CancelRequested records a request to cancel a run. A later one with Force repeats it while
// the run executes.
type CancelRequested struct {
	By     string `json:"by,omitempty"`    // see Named
	Close  string `json:"close,omitempty"` // how the session of a branch is closed at its end
	Force  bool   `json:"force,omitempty"` // the execution gives up code that does not return
	ID     string `json:"id,omitempty"`    // of the signal, see SignalReceived
	Reason string `json:"reason"`
	Run    run.ID `json:"run"`
	Says   string `json:"says,omitempty"`
	// Settle is set in the log of a fork. It is the run's home, to which this event
	// reports the run's usage in the fork; see Ended.
	Settle session.ID `json:"settle,omitempty"`
}

// Warning is a message about a run to the author of its workflow.
type Warning struct {
	Run  run.ID `json:"run"`
	Text string `json:"text"`
}

// Status is the progress that a workflow reports. It is no step: a later execution need
// not set it again.
type Status struct {
	// N is the number of times that Forward had set a status, so that an execution that
	// repeats the code skips those that are recorded.
	N     uint64 `json:"n"`
	Run   run.ID `json:"run"`
	Value string `json:"value"` // JSON text, at most MaxStatus bytes
}

// MaxStatus is the maximum size of a status, in bytes.
const MaxStatus = 4 << 10

// Ended records the outcome of a run: its complete result and the consequences.
type Ended struct {
	Attempt   uint64        `json:"attempt"`
	AwaitedBy []Ancestor    `json:"awaited_by,omitempty"` // the runs whose predecessor it is
	Awaits    []session.ID  `json:"awaits,omitempty"`     // the logs of the events of its last wait
	Branches  []session.ID  `json:"branches,omitempty"`   // of fan-outs, still open; they are cancelled
	Children  []session.ID  `json:"children,omitempty"`   // the open ones among the run's children are cancelled
	Code      run.Code      `json:"code,omitempty"`
	Error     string        `json:"error,omitempty"`
	Finish    string        `json:"finish,omitempty"` // of the last answer to an agent of the run's own execution, as in StepCompleted
	Word      string        `json:"finish_word,omitempty"`
	Head      blob.Digest   `json:"head,omitzero"`   // of the session's files after it
	Limit     *LimitPlace   `json:"limit,omitempty"` // the grant or the request that it releases
	Lost      session.Usage `json:"lost,omitzero"`   // the part of Usage that is estimated, see StepCompleted and Reservations
	Next      *Offer        `json:"next,omitempty"`  // the queued run that is promoted
	Output    string        `json:"output,omitempty"`
	Parent    *Ancestor     `json:"parent,omitempty"` // the run to which a branch reports its outcome
	Result    *session.Link `json:"result,omitempty"`
	Run       run.ID        `json:"run"`
	Starter   *Ancestor     `json:"starter,omitempty"` // the run that started it, and its step, which get its outcome
	// Settle is the home of the run if Usage lacks the steps in the logs of Children: the
	// run ended without its execution, and their ends report to that log. See Settled.
	Settle session.ID `json:"settle,omitempty"`
	State  run.State  `json:"state"`
	Steps  int64      `json:"steps,omitempty"` // of the run and its branches, as Usage counts them
	// Unrecorded is the part of Usage of model calls whose steps were not recorded
	// before the end of the run.
	Unrecorded session.Usage   `json:"unrecorded,omitzero"`
	Usage      session.Usage   `json:"usage,omitzero"`
	Version    session.Version `json:"version,omitempty"` // of the session after it
	Workflow   string          `json:"workflow"`
}

// MaxOutput is the maximum size of the last assistant text in a result, in bytes.
const MaxOutput = 16 << 10

// Offer names a run for the nodes that could claim it.
type Offer struct {
	Revision string `json:"revision,omitempty"`
	Run      run.ID `json:"run"`
	Workflow string `json:"workflow"`
}

// StepStarted records, before its start, a call whose effect must not happen twice.
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
	StepGather    = "gather" // collects the outcomes of a fan-out's branches
	StepAwait     = "await"
	StepParallel  = "parallel"  // functions at the same time, whose steps are below its path; Value is a Parallel
	StepSelect    = "select"    // waits for the first of several; Value is its index, and the step below SelectPath has its outcome
	StepLoop      = "loop"      // opens a loop, whose iterations are below its path; Value is an Iteration
	StepIteration = "iteration" // ends an iteration of a loop; Value is an Iteration
	StepTag       = "tag"       // Name is the key of a tag, and Value the new value as JSON, "" without the tag
	StepDefer     = "defer"     // registers a compensation, see Deferred
	StepStart     = "start"     // starts the run whose id is in Value, as Started; Name is its workflow
	StepResult    = "result"    // waits for the end of the started run Name; Value is its RunEnd
)

// The origins, as Agent, of user rows that were neither typed by a user nor written by
// an agent as a summary.
const (
	ByWorkspace = "workspace" // instructions for agents in the workspace's files
	ByHook      = "hook"      // why an agent is not done
)

// The reasons for another call of a model after an answer, as StepCompleted.Again.
const (
	AgainCut     = "cut"     // at the limit of its length: the next answer continues it
	AgainPaused  = "paused"  // by the server: the next answer continues it
	AgainEmpty   = "empty"   // no text and no calls
	AgainMissing = "missing" // it announces calls and has none
	AgainText    = "text"    // a call is written as text
	AgainCalls   = "calls"   // its calls are cut: each has a result that reports it
	AgainShort   = "short"   // of a summary: too short for the text that it replaces
)

// StepCompleted records a step's outcome, value or error.
type StepCompleted struct {
	// Again is the reason why the model is called again after its answer, such as
	// AgainCut. "" means that the answer is final, or that it ends the agent with a
	// Code. The text of an answer without a row is in Value, as Partial.
	Again string `json:"again,omitempty"`
	// Asks is the operator's question with which a tool's call ended. The call is
	// repeated below its path, with the answer.
	Asks    *Asked   `json:"asks,omitempty"`
	Attempt uint64   `json:"attempt"`
	Call    string   `json:"call,omitempty"`
	Code    run.Code `json:"code,omitempty"`
	// Cost is the source of the money in Usage, for a model's call: "priced" from the
	// tokens and the node's list of models, "stated" by the server, or "free"; "" if it
	// is unknown.
	Cost    string `json:"cost,omitempty"`
	Effect  string `json:"effect,omitempty"`
	Elapsed int64  `json:"elapsed,omitempty"` // milliseconds
	Error   string `json:"error,omitempty"`
	Failed  bool   `json:"failed,omitempty"` // a tool's body reports a failure
	// Finish is the reason why a model's answer ended, as llm.Finish, and Word the
	// server's own word for it if its protocol lacks that word.
	Finish string `json:"finish,omitempty"`
	Word   string `json:"finish_word,omitempty"`
	// Given is the blob of the Instructions of a model's call.
	Given blob.Digest `json:"given,omitzero"`
	// HeadBefore and HeadAfter are the heads of the workspace before and after a call
	// that may change it.
	HeadAfter  blob.Digest `json:"head_after,omitzero"`
	HeadBefore blob.Digest `json:"head_before,omitzero"`
	// Images are the images of a tool's result, until its row exists.
	Images []session.Image `json:"images,omitempty"`
	// Inbox is the place in the run's inbox up to which the step consumed messages.
	Inbox uint64 `json:"inbox,omitempty"`
	Input string `json:"input"` // digest of the request
	Kind  string `json:"kind"`
	// Links are the sessions of a fork, a join or a rejection.
	Links []session.Link `json:"links,omitempty"`
	// Lost is the part of Usage that is estimated: for calls that were cut off before
	// they ended, and for calls whose server counts no tokens.
	Lost  session.Usage `json:"lost,omitzero"`
	Model string        `json:"model,omitempty"`
	Name  string        `json:"name"`
	// Named is the model's name in the node's list, and Passed are the models before it
	// in its chain that failed.
	Named  string        `json:"named,omitempty"`
	Passed []PassedModel `json:"passed,omitempty"`
	Path   run.Path      `json:"path"`
	// Prices is the day of the prices behind a "priced" Cost.
	Prices string      `json:"prices,omitempty"`
	Prompt blob.Digest `json:"prompt,omitzero"` // of the rendered request
	// Requests are the network requests of commands in their sandbox.
	Requests []NetworkRequest `json:"requests,omitempty"`
	// Held marks the record of a failed try after which the run waits for a decision.
	Held bool `json:"held,omitempty"`
	// Retry is the pause before the next try, in milliseconds, in the record of a failed
	// try: a step below the work's own, such as "4.try.1". It is zero for other steps.
	Retry    int64  `json:"retry,omitempty"`
	Revision string `json:"revision,omitempty"`
	// Row reports that the outcome is the chunk that the same batch adds. It avoids
	// storing the outcome twice.
	Row bool   `json:"row,omitempty"`
	Run run.ID `json:"run"`
	// Services is the output of services during a call, since the previous call.
	Services []ServiceLog `json:"services,omitempty"`
	Source   string       `json:"source,omitempty"` // file:line of an implicit fork
	Steps    int64        `json:"steps,omitempty"`  // of the branches whose outcomes it collects
	Summary  string       `json:"summary,omitempty"`
	// Unlisted counts the network requests that Requests leaves out.
	Unlisted int           `json:"unlisted,omitempty"`
	Usage    session.Usage `json:"usage,omitzero"`
	Value    string        `json:"value,omitempty"` // JSON text
}

// Parallel is the value of a step that called functions at the same time.
type Parallel struct {
	// Cut is set if an error of one ended the others at their next step.
	Cut     bool `json:"cut,omitempty"`
	Started int  `json:"started"` // the first ones; with Cut the others were not called
}

// Announced returns the path of the intent that the outcome closes.
func (d *StepCompleted) Announced() run.Path {
	if d.Retry > 0 || d.Held {
		return d.Path.Parent().Parent()
	}
	return d.Path
}

// FinishText describes for users why the answer of a model ended, "" without a reason.
func FinishText(finish, word string) string {
	if finish == "" {
		return ""
	}
	if word != "" {
		word = fmt.Sprintf(", in the server's word %q", word)
	}
	return "finish " + finish + word
}

// Partial is a model's answer without a row: the model was called again, or the answer
// ended the agent.
type Partial struct {
	Calls  []session.ToolCall `json:"calls,omitempty"`
	Opaque string             `json:"opaque,omitempty"`
	Text   string             `json:"text,omitempty"`
}

// ServiceLog is the end of a service's output.
type ServiceLog struct {
	Log  string `json:"log"`
	More int64  `json:"more,omitempty"` // bytes before it
	Name string `json:"name"`
}

// CostSource returns the source of the money in Usage: one word or, for "priced", the
// word and the day of the prices. It returns "" if the source is unknown.
func (d *StepCompleted) CostSource() string {
	if d.Prices != "" {
		return d.Cost + " " + d.Prices
	}
	return d.Cost
}

// Unpriced returns the model of a call whose cost is unknown, "" if there is none.
func (d *StepCompleted) Unpriced() string {
	used := d.Usage
	if d.Code != "" { // a lost call has no answer that could state its cost
		used = used.Sub(d.Lost)
	}
	if used.Calls == 0 || used.Tokens() == 0 || used.MicroUSD > 0 || d.Cost != "" || d.Kind == StepGather || d.Kind == StepJoin {
		return ""
	}
	return cmp.Or(d.Named, d.Model, "without a name")
}

// Asked is a question of a tool's call: for an approval, and with it for values that
// match a schema.
type Asked struct {
	Message string `json:"message"`
	Schema  string `json:"schema,omitempty"` // JSON text; "" accepts any object
}

// PassedModel is a model that was replaced by another one.
type PassedModel struct {
	Code run.Code `json:"code"` // why
	Name string   `json:"name"` // in the node's list
}

// NetworkRequest is a command's request to a host.
type NetworkRequest struct {
	Host     string `json:"host"`
	Method   string `json:"method"`
	Path     string `json:"path,omitempty"`     // with its query, clipped
	Received int64  `json:"received,omitempty"` // bytes of the answer's body
	Refused  string `json:"refused,omitempty"`  // why the proxy did not carry it out
	Sent     int64  `json:"sent,omitempty"`     // bytes of the request's body
	Status   int    `json:"status,omitempty"`   // of the answer; zero if there was none
}

// Late records an outcome from a superseded attempt, or the network requests of a call
// that was cut off and left open. It is evidence, and no step.
type Late StepCompleted

// NewEvent encodes a payload of this package under its kind. Only the events of steps
// have a batch. The event owns the payload from the call on: the caller must not change
// it or the values that it points to.
func NewEvent(kind string, payload any) (session.Event, error) {
	data, err := canonical.Marshal(payload)
	if err != nil {
		return session.Event{}, fmt.Errorf("journal: %s: %w", kind, err)
	}
	e := session.Event{Kind: kind, Schema: Schema, Data: data}
	switch payload.(type) {
	case Submitted, WriterOpened, Claimed, StepStarted, StepCompleted, Ended: // nearly all events
		if !strings.Contains(data, notText) {
			e = e.Of(payload)
		}
	}
	return e, nil
}

// notText stands in JSON for bytes that are not valid text. Data with it may therefore
// read back as another value.
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

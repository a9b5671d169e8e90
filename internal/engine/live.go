package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/tool"
)

// Live is what an execution is at, which no log holds.
type Live struct {
	Attempt uint64
	// Since is when the last step ended, or the execution began: while no step is
	// under way, the workflow's own code has run since then.
	Since time.Time
	// Steps are those under way, the oldest first.
	Steps []InFlight
}

// InFlight is a step under way.
type InFlight struct {
	Path run.Path
	Kind string // such as journal.StepModel
	Name string // of the agent, the tool or the function
	Did  string // what a tool's call does, such as its command; "" for other steps
	// Model is the one that is asked, or the one of the list whose limit is waited for.
	Model string
	Doing Doing
	// Began is when the step began, At when Doing did or the last piece of an answer
	// came, and Until when it ends by itself: zero if that is not known.
	Began, At, Until time.Time
	// Try counts the requests for the answer in this attempt, from one.
	Try int
	// Error is why the try before failed, "" without one.
	Error string
	// Text is the end of what the model has written in this try, or how far the tool's
	// call says that it is, at most LiveText bytes. Bytes is how much that is in all, with reasoning and arguments of calls,
	// and Tokens an estimate of that.
	Text   string
	Bytes  int
	Tokens int64
	// Calls are the tools that the answer calls so far, at most liveCalls.
	Calls []string
}

// Doing is what a step under way does.
type Doing string

// What a step does.
const (
	Waits   Doing = "waits"   // for a limit of the model
	Asks    Doing = "asks"    // the model, of whose answer nothing has come
	Answers Doing = "answers" // the model writes
	Pauses  Doing = "pauses"  // before the next try
	Works   Doing = "works"   // a tool or a function of the workflow runs
	Queues  Doing = "queues"  // a tool call waits for others of its round
	Opens   Doing = "opens"   // the sandbox that a tool needs
	Records Doing = "records" // its outcome, in the log
)

const (
	// LiveText bounds the text that is told of a step under way.
	LiveText = 2 << 10
	// liveCalls bounds the names of tools, liveError the bytes of an error.
	liveCalls = 16
	liveError = 300
)

// flights are the steps under way of an execution. A step without a place among
// them, such as one that is replayed, tells nothing.
type flights struct {
	mu    sync.Mutex
	since time.Time
	all   []*flight
}

// flight is a step under way. Its methods may be called on nil.
type flight struct {
	of *flights
	InFlight
	args string // of a tool, of which a summary is told
	tail []byte // of the text, of which the last LiveText bytes are told
}

// begin adds a step.
func (f *flights) begin(s InFlight, args string) *flight {
	one := &flight{of: f, InFlight: s, args: args}
	one.At = one.Began
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, one)
	return one
}

// idle notes that the workflow's own code runs from now on.
func (f *flights) idle(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since = now
}

// end takes the step out.
func (o *flight) end() {
	if o == nil {
		return
	}
	now := time.Now()
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	o.of.all = slices.DeleteFunc(o.of.all, func(x *flight) bool { return x == o })
	o.of.since = now
}

// does notes what the step does from now on, until a time if that is known.
func (o *flight) does(d Doing, until time.Time) {
	if o == nil {
		return
	}
	now := time.Now()
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	if o.Doing == Queues {
		o.Began = now
	}
	if d == Asks && o.Doing == Asks { // a sign of life is no piece of the answer
		o.Until = until
		return
	}
	o.Doing, o.At, o.Until = d, now, until
}

// waits notes that the step waits for a limit of a model of the list, until then at most.
func (o *flight) waits(model string, until time.Time) {
	if o == nil {
		return
	}
	now := time.Now()
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	o.Doing, o.At, o.Until, o.Model = Waits, now, until, model
}

// asks notes that a model is asked for the nth time.
func (o *flight) asks(model string, n int) {
	if o == nil {
		return
	}
	now := time.Now()
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	o.Doing, o.At, o.Until, o.Model, o.Try = Asks, now, time.Time{}, model, n
	o.Bytes, o.tail, o.Calls = 0, o.tail[:0], nil
}

// failed notes why a try failed.
func (o *flight) failed(err error) {
	if o == nil {
		return
	}
	text := excerpt.Clip(err.Error(), liveError)
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	o.Error = text
}

// came notes a piece of the model's answer.
func (o *flight) came(text, tool string, bytes int) {
	if o == nil {
		return
	}
	now := time.Now()
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	o.Doing, o.At, o.Until = Answers, now, time.Time{}
	o.Bytes += bytes
	if o.tail = append(o.tail, text...); len(o.tail) > 2*LiveText {
		o.tail = append(o.tail[:0], o.tail[len(o.tail)-LiveText:]...)
	}
	if tool != "" && len(o.Calls) < liveCalls {
		o.Calls = append(o.Calls, tool)
	}
}

// says notes how far a tool's call is, in the place of what it said before.
func (o *flight) says(text string) {
	if o == nil {
		return
	}
	text, now := excerpt.Clip(text, LiveText), time.Now()
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	o.tail, o.At = append(o.tail[:0], text...), now
}

// tell copies what is under way.
func (f *flights) tell() (since time.Time, steps []InFlight) {
	f.mu.Lock()
	since = f.since
	args := make([]string, len(f.all))
	for i, o := range f.all {
		s := o.InFlight
		s.Text, s.Calls, args[i] = string(o.tail), slices.Clone(o.Calls), o.args
		steps = append(steps, s)
	}
	f.mu.Unlock()
	for i := range steps {
		s := &steps[i]
		s.Text, s.Tokens = excerpt.End(s.Text, LiveText), llm.Estimate(s.Bytes)
		if args[i] != "" {
			s.Did = summary(s.Name, args[i], tool.Outcome{})
		}
	}
	return since, steps
}

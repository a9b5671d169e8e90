package live

import (
	"slices"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/tool"
)

// Report is what an execution is at, which no log holds.
type Report struct {
	Attempt uint64
	// Since is when the last step ended, or the execution began: while no step is
	// under way, the workflow's own code has run since then.
	Since time.Time
	// Steps are those under way, the oldest first.
	Steps []Step
}

// Step is a step under way.
type Step struct {
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
	// call says that it is, at most MaxText bytes. Bytes is how much that is in all, with reasoning and arguments of calls,
	// and Tokens an estimate of that.
	Text   string
	Bytes  int
	Tokens int64
	// Calls are the tools that the answer calls so far, at most maxCalls.
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
	// MaxText bounds the text that is told of a step under way.
	MaxText = 2 << 10
	// maxCalls bounds the names of tools, maxError the bytes of an error.
	maxCalls = 16
	maxError = 300
)

// Steps are the steps under way of an execution. A step without a place among
// them, such as one that is replayed, tells nothing.
type Steps struct {
	mu    sync.Mutex
	since time.Time
	all   []*Flight
}

// Flight is a step under way. Its methods may be called on nil.
type Flight struct {
	of *Steps
	Step
	args string // of a tool, of which a summary is told
	tail []byte // of the text, of which the last MaxText bytes are told
}

// Begin adds a step.
func (f *Steps) Begin(s Step, args string) *Flight {
	one := &Flight{of: f, Step: s, args: args}
	one.At = one.Began
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, one)
	return one
}

// SetIdle notes that the workflow's own code runs from now on.
func (f *Steps) SetIdle(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since = now
}

// End takes the step out.
func (o *Flight) End() {
	if o == nil {
		return
	}
	now := time.Now()
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	o.of.all = slices.DeleteFunc(o.of.all, func(x *Flight) bool { return x == o })
	o.of.since = now
}

// SetDoing notes what the step does from now on, until a time if that is known.
func (o *Flight) SetDoing(d Doing, until time.Time) {
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

// WaitForLimit notes that the step waits for a limit of a model of the list, until then at most.
func (o *Flight) WaitForLimit(model string, until time.Time) {
	if o == nil {
		return
	}
	now := time.Now()
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	o.Doing, o.At, o.Until, o.Model = Waits, now, until, model
}

// AskModel notes that a model is asked for the nth time.
func (o *Flight) AskModel(model string, n int) {
	if o == nil {
		return
	}
	now := time.Now()
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	o.Doing, o.At, o.Until, o.Model, o.Try = Asks, now, time.Time{}, model, n
	o.Bytes, o.tail, o.Calls = 0, o.tail[:0], nil
}

// SetError notes why a try failed.
func (o *Flight) SetError(err error) {
	if o == nil {
		return
	}
	text := excerpt.Clip(err.Error(), maxError)
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	o.Error = text
}

// AddAnswer notes a piece of the model's answer.
func (o *Flight) AddAnswer(text, tool string, bytes int) {
	if o == nil {
		return
	}
	now := time.Now()
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	o.Doing, o.At, o.Until = Answers, now, time.Time{}
	o.Bytes += bytes
	if o.tail = append(o.tail, text...); len(o.tail) > 2*MaxText {
		o.tail = append(o.tail[:0], o.tail[len(o.tail)-MaxText:]...)
	}
	if tool != "" && len(o.Calls) < maxCalls {
		o.Calls = append(o.Calls, tool)
	}
}

// SetProgress notes how far a tool's call is, in the place of what it said before.
func (o *Flight) SetProgress(text string) {
	if o == nil {
		return
	}
	text, now := excerpt.Clip(text, MaxText), time.Now()
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	o.tail, o.At = append(o.tail[:0], text...), now
}

// Snapshot copies what is under way.
func (f *Steps) Snapshot() (since time.Time, steps []Step) {
	f.mu.Lock()
	since = f.since
	args := make([]string, len(f.all))
	for i, o := range f.all {
		s := o.Step
		s.Text, s.Calls, args[i] = string(o.tail), slices.Clone(o.Calls), o.args
		steps = append(steps, s)
	}
	f.mu.Unlock()
	for i := range steps {
		s := &steps[i]
		s.Text, s.Tokens = excerpt.End(s.Text, MaxText), llm.Estimate(s.Bytes)
		if args[i] != "" {
			s.Did = CallSummary(s.Name, args[i], tool.Outcome{})
		}
	}
	return since, steps
}

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

// Report is the current work of an execution, which no log holds.
type Report struct {
	Attempt uint64
	// Since is the time at which the last step ended, or the execution began: while no
	// step is in flight, the workflow's own code has run since then.
	Since time.Time
	// Steps are the steps in flight, the oldest first.
	Steps []Step
}

// Step is a step in flight.
type Step struct {
	Path run.Path
	Kind string // such as journal.StepModel
	Name string // of the agent, the tool or the function
	Did  string // a summary of a tool call, such as its command; "" for other steps
	// Model is the model that the request is sent to, or the model of the list whose
	// limit delays the request.
	Model string
	Doing Doing
	// Began is the start of the step. At is the time of the last change of Doing, or of
	// the last piece of an answer. Until is the time limit of the current phase, or zero
	// if it has none.
	Began, At, Until time.Time
	// Try counts the requests for the answer in this attempt, from one.
	Try int
	// Error is the error of the previous try; "" for none.
	Error string
	// Text is the end of the answer's text in this try, or the progress that the tool
	// call reports, at most MaxText bytes. From is the byte of the answer at which Text
	// begins, and N the number of the last delta of the try whose text it includes. Bytes
	// is the size of the whole output, with reasoning and arguments of calls, and Tokens
	// an estimate for it.
	Text   string
	From   int
	N      uint64
	Bytes  int
	Tokens int64
	// Calls are the names of the tools called in the answer so far, at most maxCalls.
	Calls []string
}

// Doing is the phase of a step in flight.
type Doing string

// Phases of a step.
const (
	Waits   Doing = "waits"   // for a limit of the model
	Asks    Doing = "asks"    // the model, which has not begun to answer
	Answers Doing = "answers" // the model writes
	Pauses  Doing = "pauses"  // before the next try
	Works   Doing = "works"   // a tool or a function of the workflow runs
	Queues  Doing = "queues"  // a tool call waits for others of its round
	Opens   Doing = "opens"   // the sandbox for a tool
	Records Doing = "records" // the outcome, in the log
)

const (
	// MaxText bounds the text in the report of a step, in bytes.
	MaxText = 2 << 10
	// maxCalls bounds the names of tools, maxError the bytes of an error.
	maxCalls = 16
	maxError = 300
)

// Steps are the steps in flight of an execution. A step without a place among them, such
// as a replayed one, is not reported.
type Steps struct {
	mu    sync.Mutex
	since time.Time
	all   []*Flight
}

// Flight is a step in flight. Its methods may be called on nil.
type Flight struct {
	of *Steps
	Step
	args string // of a tool; the report has a summary
	tail []byte // of the text; the report has its last MaxText bytes
	size int    // of the whole text of the answer
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

// SetIdle records the time from which the workflow's own code runs.
func (f *Steps) SetIdle(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since = now
}

// End removes the step.
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

// SetDoing sets the phase of the step, and its time limit if it has one.
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
	if d == Asks && o.Doing == Asks { // a sign of life is not a piece of the answer
		o.Until = until
		return
	}
	o.Doing, o.At, o.Until = d, now, until
}

// WaitForLimit records that the step waits for a limit of a model of the list, at most
// until a time.
func (o *Flight) WaitForLimit(model string, until time.Time) {
	if o == nil {
		return
	}
	now := time.Now()
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	o.Doing, o.At, o.Until, o.Model = Waits, now, until, model
}

// AskModel records the nth request to a model.
func (o *Flight) AskModel(model string, n int) {
	if o == nil {
		return
	}
	now := time.Now()
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	o.Doing, o.At, o.Until, o.Model, o.Try = Asks, now, time.Time{}, model, n
	o.Bytes, o.Calls = 0, nil
	o.restart(0)
}

// SetError records the error of a failed try.
func (o *Flight) SetError(err error) {
	if o == nil {
		return
	}
	text := excerpt.Clip(err.Error(), maxError)
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	o.Error = text
}

// AddAnswer records the arrival of a piece of the model's answer, and the tool whose call
// begins in it.
func (o *Flight) AddAnswer(tool string, bytes int) {
	if o == nil {
		return
	}
	now := time.Now()
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	o.Doing, o.At, o.Until = Answers, now, time.Time{}
	o.Bytes += bytes
	if tool != "" && len(o.Calls) < maxCalls {
		o.Calls = append(o.Calls, tool)
	}
}

// AddDelta records the text of the nth delta of the try, which is about to be published.
// A void delta drops the text before it.
func (o *Flight) AddDelta(n uint64, text string, void bool) {
	if o == nil {
		return
	}
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	if void {
		o.restart(n)
		return
	}
	o.N = n
	o.size += len(text)
	if o.tail = append(o.tail, text...); len(o.tail) > 2*MaxText {
		o.tail = append(o.tail[:0], o.tail[len(o.tail)-MaxText:]...)
	}
}

// restart drops the text up to the nth delta. The caller has the lock.
func (o *Flight) restart(n uint64) { o.N, o.size, o.tail = n, 0, o.tail[:0] }

// SetProgress sets the progress of a tool call, in place of the previous text.
func (o *Flight) SetProgress(text string) {
	if o == nil {
		return
	}
	text, now := excerpt.Clip(text, MaxText), time.Now()
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	o.tail, o.At = append(o.tail[:0], text...), now
}

// Snapshot copies the steps in flight.
func (f *Steps) Snapshot() (since time.Time, steps []Step) {
	f.mu.Lock()
	since = f.since
	args := make([]string, len(f.all))
	for i, o := range f.all {
		s := o.Step
		s.Text, s.From, s.Calls, args[i] = string(o.tail), o.size, slices.Clone(o.Calls), o.args
		steps = append(steps, s)
	}
	f.mu.Unlock()
	for i := range steps {
		s := &steps[i]
		s.Text, s.Tokens = excerpt.End(s.Text, MaxText), llm.Estimate(s.Bytes)
		s.From = max(s.From-len(s.Text), 0) // the whole size before; zero for the progress of a tool
		if args[i] != "" {
			s.Did = CallSummary(s.Name, args[i], tool.Outcome{})
		}
	}
	return since, steps
}

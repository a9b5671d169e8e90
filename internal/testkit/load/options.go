package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// The bounds of a load, and the defaults for zero.
const (
	MaxTasks    = 1 << 20
	MaxInFlight = 10_000

	DefaultWorkflow = "agent"
	DefaultTasks    = 100
	DefaultInFlight = 16
	DefaultDuration = time.Minute
	DefaultSettle   = time.Minute
)

// settleMost bounds Settle and Duration.
const settleMost = 24 * time.Hour

// ErrOptions marks options out of their bounds.
var ErrOptions = errors.New("load: options out of bounds")

// Options configure a load; zero fields are the defaults.
type Options struct {
	Tenant   session.Tenant
	Workflow string
	// Tasks are submitted at most.
	Tasks int
	// Rate is the number of submissions per second; 0 is the maximum that InFlight allows.
	Rate float64
	// InFlight bounds the tasks that have no result yet.
	InFlight int
	// Duration bounds the time of submitting, Settle the wait for the last results after it.
	Duration, Settle time.Duration
	// Task makes the i-th task, from 0, without its id; nil is a short text as
	// input.
	Task func(i int) (messages.Task, error)
	// First returns the time at which the first step of a run began, see Model.First; nil
	// skips the measurement.
	First func(run.ID) (time.Time, bool)
	// Lag returns the number of waiting messages in the work queues, such as the sum of
	// Conn.Lag; nil skips the measurement.
	Lag func(context.Context) (int64, error)
	// Processes are those whose processor time is measured.
	Processes []Process
	// Ended is called with the id and the result of each ended run, one call at a time; nil
	// ignores them.
	Ended func(run.ID, messages.Result)
}

func (o *Options) defaults() error {
	if o.Tenant == "" {
		o.Tenant = session.DefaultTenant
	}
	if o.Workflow == "" {
		o.Workflow = DefaultWorkflow
	}
	if o.Tasks == 0 {
		o.Tasks = DefaultTasks
	}
	if o.InFlight == 0 {
		o.InFlight = DefaultInFlight
	}
	if o.Duration == 0 {
		o.Duration = DefaultDuration
	}
	if o.Settle == 0 {
		o.Settle = DefaultSettle
	}
	if o.Task == nil {
		o.Task = func(int) (messages.Task, error) { return messages.Task{Input: json.RawMessage(`"say hello"`)}, nil }
	}
	for _, f := range []struct {
		name string
		ok   bool
		want string
	}{
		{"tasks", o.Tasks > 0 && o.Tasks <= MaxTasks, fmt.Sprintf("1 to %d", MaxTasks)},
		{"in flight", o.InFlight > 0 && o.InFlight <= MaxInFlight, fmt.Sprintf("1 to %d", MaxInFlight)},
		{"rate", o.Rate >= 0 && o.Rate <= 1e6, "0 to 1000000 per second"},
		{"duration", o.Duration > 0 && o.Duration <= settleMost, "more than nothing, at most 24h"},
		{"settle", o.Settle > 0 && o.Settle <= settleMost, "more than nothing, at most 24h"},
	} {
		if !f.ok {
			return fmt.Errorf("%w: %s: want %s", ErrOptions, f.name, f.want)
		}
	}
	return errors.Join(session.ValidID("workflow", o.Workflow), session.ValidID("tenant", string(o.Tenant)))
}

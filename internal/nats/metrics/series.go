package metrics

import (
	"slices"

	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// Kind is the Prometheus type of a series.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Desc describes a series.
type Desc struct {
	Name   string
	Kind   Kind
	Labels []string
	Help   string
}

// The names of the series.
const (
	buildInfo       = "rath_build_info"
	natsConnected   = "rath_nats_connected"
	slots           = "rath_slots"
	slotsFree       = "rath_slots_free"
	runsOpen        = "rath_runs_open"
	runsWaiting     = "rath_runs_waiting"
	oldestWaiting   = "rath_runs_waiting_oldest_seconds"
	runsEnded       = "rath_runs_ended_total"
	steps           = "rath_steps_total"
	modelRequests   = "rath_model_requests_total"
	modelTokens     = "rath_model_tokens_total"
	modelCost       = "rath_model_cost_usd_total"
	commitSeconds   = "rath_commit_duration_seconds"
	commitFailures  = "rath_commit_failures_total"
	lineageLag      = "rath_lineage_lag_messages"
	relayPartitions = "rath_relay_partitions"
	streamBytes     = "rath_stream_bytes"
	streamFill      = "rath_stream_fill_ratio"
	deadLetters     = "rath_dead_letters_total"
	leaked          = "rath_leaked_goroutines"
	lateOutcomes    = "rath_late_outcomes_total"
	quotaBlocked    = "rath_quota_blocked_total"
)

// Series are all the series, in the order of docs/metrics.md.
func Series() []Desc {
	return []Desc{
		{buildInfo, Gauge, []string{"version"}, "Always 1, with the release of the program."},
		{natsConnected, Gauge, nil, "1 while a NATS server is connected, else 0."},
		{slots, Gauge, []string{"pool"}, "Maximum number of concurrent runs of this node."},
		{slotsFree, Gauge, []string{"pool"}, "Free slots of this node."},
		{runsOpen, Gauge, []string{"state"}, "Open runs, in the partitions of this process's relays."},
		{runsWaiting, Gauge, []string{"pool", "class"}, "Runs waiting for a slot of a pool, in the partitions of this process's relays."},
		{oldestWaiting, Gauge, []string{"pool"}, "Waiting time of the oldest run without a slot of the pool, in the partitions of this process's relays."},
		{runsEnded, Counter, []string{"state"}, "Runs and branches ended by this process."},
		{steps, Counter, []string{"kind", "outcome"}, "Steps recorded by this process."},
		{modelRequests, Counter, []string{"code"}, "Requests to models, including retries, by outcome."},
		{modelTokens, Counter, []string{"kind"}, "Tokens of model calls, as reported by their servers."},
		{modelCost, Counter, nil, "Cost of model calls with a known price."},
		{commitSeconds, Histogram, nil, "Time for the log to make a commit durable."},
		{commitFailures, Counter, []string{"reason"}, "Commits rejected, or with an unknown outcome."},
		{lineageLag, Gauge, nil, "Messages of the event streams without lineage, in the partitions of this process's relays."},
		{relayPartitions, Gauge, nil, "Partitions relayed by this process."},
		{streamBytes, Gauge, []string{"stream"}, "Bytes in a stream."},
		{streamFill, Gauge, []string{"stream"}, "Used part of a stream's limit."},
		{deadLetters, Counter, nil, "Tasks stored by this process as dead letters."},
		{leaked, Gauge, nil, "Functions of workflows of this process that were given up and have not returned. Past 64 the node drains."},
		{lateOutcomes, Counter, nil, "Outcomes of calls that came after their attempt or run, recorded by this process as step.late."},
		{quotaBlocked, Counter, nil, "Model calls that began to wait for the quota of their tenant, recorded by this process."},
	}
}

// The values of labels. All of them exist from the start, so that each has a rate.
var (
	openStates  = []run.State{run.Queued, run.Running, run.Waiting, run.NeedsReview}
	endedStates = []run.State{run.Succeeded, run.Failed, run.Cancelled, run.TimedOut}
	stepKinds   = []string{kindModel, kindTool, kindOther}
	outcomes    = []string{outcomeOK, outcomeFailed}
	tokenKinds  = []string{"input", "output", "cache_read", "cache_write"}
	reasons     = []string{reasonConflict, reasonTooLarge, reasonFull, reasonUnavailable}
)

const (
	kindModel, kindTool, kindOther = "model", "tool", "other"
	outcomeOK, outcomeFailed       = "ok", "failed"

	reasonConflict    = "conflict"
	reasonTooLarge    = "too_large"
	reasonFull        = "full"
	reasonUnavailable = "unavailable"

	codeOK, codeOther = "ok", "other"
)

// modelCodes are the codes of requests.
func modelCodes() []string {
	codes := []string{codeOK}
	for _, c := range llm.Codes() {
		codes = append(codes, string(c))
	}
	return append(codes, codeOther)
}

// modelCode is the value for a code, one of modelCodes.
func modelCode(c llm.Code) string {
	switch {
	case c == "":
		return codeOK
	case slices.Contains(llm.Codes(), c):
		return string(c)
	}
	return codeOther
}

// Pool labels that name no pool. No pool can have such a name.
const (
	// noPool labels runs whose workflow no node offers, otherPool all pools beyond
	// poolsMost, boundPool the pools of nodes bound to tenants, whose names are the
	// tenants'.
	noPool, otherPool, boundPool = "(none)", "(other)", "(bound)"
	poolsMost                    = 64
)

// pools bounds the values of the label pool, for as long as the process runs.
type pools struct{ seen []string }

// label is the value for a pool.
func (p *pools) label(name string) string {
	if _, bound := messages.PoolOf(name); bound {
		name = boundPool
	}
	switch {
	case name == "":
		name = noPool
	case slices.Contains(p.seen, name):
		return name
	case len(p.seen) >= poolsMost:
		name = otherPool
	}
	if !slices.Contains(p.seen, name) {
		p.seen = append(p.seen, name)
	}
	return name
}

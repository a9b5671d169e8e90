package metrics

import (
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Metrics counts the work of a process, and answers scrapes. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	version  string
	descs    map[string]*prometheus.Desc
	state    atomic.Pointer[func() State]

	ended    *prometheus.CounterVec
	steps    *prometheus.CounterVec
	requests *prometheus.CounterVec
	tokens   *prometheus.CounterVec
	cost     prometheus.Counter
	late     prometheus.Counter
	blocked  prometheus.Counter
	commits  prometheus.Histogram
	failures *prometheus.CounterVec

	mu    sync.Mutex
	pools pools
}

// New returns the metrics of a process of a release, with a registry of its own.
func New(version string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), version: version, descs: map[string]*prometheus.Desc{}}
	vec := map[string]**prometheus.CounterVec{
		runsEnded: &m.ended, steps: &m.steps, modelRequests: &m.requests, modelTokens: &m.tokens, commitFailures: &m.failures,
	}
	counter := map[string]*prometheus.Counter{modelCost: &m.cost, lateOutcomes: &m.late, quotaBlocked: &m.blocked}
	for _, d := range Series() {
		switch to, one := vec[d.Name], counter[d.Name]; {
		case to != nil:
			*to = prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Name, Help: d.Help}, d.Labels)
			m.registry.MustRegister(*to)
		case one != nil:
			*one = prometheus.NewCounter(prometheus.CounterOpts{Name: d.Name, Help: d.Help})
			m.registry.MustRegister(*one)
		case d.Name == commitSeconds:
			m.commits = prometheus.NewHistogram(prometheus.HistogramOpts{Name: d.Name, Help: d.Help, Buckets: []float64{
				.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30,
			}})
			m.registry.MustRegister(m.commits)
		default:
			m.descs[d.Name] = prometheus.NewDesc(d.Name, d.Help, d.Labels, nil)
		}
	}
	m.registry.MustRegister((*collector)(m))
	for _, s := range endedStates {
		m.ended.WithLabelValues(string(s))
	}
	for _, k := range stepKinds {
		for _, o := range outcomes {
			m.steps.WithLabelValues(k, o)
		}
	}
	for _, c := range modelCodes() {
		m.requests.WithLabelValues(c)
	}
	for _, k := range tokenKinds {
		m.tokens.WithLabelValues(k)
	}
	for _, r := range reasons {
		m.failures.WithLabelValues(r)
	}
	return m
}

// Requested counts a request to a model that ended with a code, "" for an answer.
func (m *Metrics) Requested(code llm.Code) { m.requests.WithLabelValues(modelCode(code)).Inc() }

// Appended counts a commit that the log made durable after took, or rejected with an error,
// and the commit's steps and ends.
func (m *Metrics) Appended(c commitlog.Commit, took time.Duration, err error) {
	if err != nil {
		m.failures.WithLabelValues(reasonOf(err)).Inc()
		return
	}
	m.commits.Observe(took.Seconds())
	for i := range c.Events {
		e := &c.Events[i]
		switch e.Kind {
		case journal.KindStepCompleted, journal.KindEnded:
		case journal.KindLate:
			m.late.Inc()
			continue
		case journal.KindLimitBlocked:
			m.blocked.Inc()
			continue
		default:
			continue
		}
		v, err := count(*e)
		switch {
		case err != nil:
		case e.Kind == journal.KindStepCompleted:
			m.step(v)
		case slices.Contains(endedStates, v.State):
			m.ended.WithLabelValues(string(v.State)).Inc()
		}
	}
}

// counted are the counted fields of a journal.StepCompleted or journal.Ended: both have
// many more, which take time to decode.
type counted struct {
	Code   run.Code      `json:"code"`
	Failed bool          `json:"failed"`
	Kind   string        `json:"kind"`
	State  run.State     `json:"state"`
	Usage  session.Usage `json:"usage"`
}

// count reads the counted fields of an event from the value that it was made of, if it has
// one.
func count(e session.Event) (counted, error) {
	switch v := e.Made().(type) {
	case journal.StepCompleted:
		return counted{Code: v.Code, Failed: v.Failed, Kind: v.Kind, Usage: v.Usage}, nil
	case journal.Ended:
		return counted{Code: v.Code, State: v.State, Usage: v.Usage}, nil
	}
	return journal.Decode[counted](e)
}

func (m *Metrics) step(v counted) {
	kind, outcome := kindOther, outcomeOK
	switch v.Kind {
	case journal.StepModel:
		kind = kindModel
	case journal.StepTool:
		kind = kindTool
	}
	if v.Code != "" || v.Failed {
		outcome = outcomeFailed
	}
	m.steps.WithLabelValues(kind, outcome).Inc()
	if v.Kind == journal.StepGather {
		return // the usage of its branches was counted with their steps
	}
	u := v.Usage
	for i, n := range []int64{u.Input, u.Output, u.CacheRead, u.CacheWrite} {
		m.tokens.WithLabelValues(tokenKinds[i]).Add(float64(max(n, 0)))
	}
	m.cost.Add(float64(max(u.MicroUSD, 0)) / 1e6)
}

func reasonOf(err error) string {
	switch {
	case errors.Is(err, session.ErrConflict), errors.Is(err, run.ErrSuperseded):
		return reasonConflict
	case errors.Is(err, session.ErrTooLarge):
		return reasonTooLarge
	case errors.Is(err, conn.ErrFull):
		return reasonFull
	}
	return reasonUnavailable
}

// scrapesAtOnce bounds the scrapes that are answered concurrently; further ones get status
// 503.
const scrapesAtOnce = 4

// Handler answers scrapes.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: scrapesAtOnce})
}

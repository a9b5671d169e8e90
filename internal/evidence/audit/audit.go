package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strings"
	"time"
)

// The invariants, by the names that reports use.
const (
	Chain         = "chain"
	Format        = "format"
	OneWriter     = "one-writer"
	OneEnd        = "one-end"
	NoRepeat      = "no-silent-repeat"
	ReadClaim     = "read-before-claim"
	Waits         = "waits"
	Graph         = "graph"
	BranchResults = "branch-results"
	Budgets       = "budgets"
	Tenant        = "tenant"
	Workspace     = "workspace"
	Blobs         = "blobs"
	Lineage       = "lineage"
	Results       = "results"
	Aliases       = "aliases"
	Acknowledged  = "persist-before-reply"
	Secrets       = "secrets"
	Archives      = "archives"
	Cleanup       = "cleanup"
	Starts        = "starts"
	Limits        = "limits"
	Events        = "events"
)

// Invariant is a property of the stored bytes in every state.
type Invariant struct {
	Name string `json:"name"`
	Doc  string `json:"doc"`
}

// Invariants returns all invariants, in the order of reports.
func Invariants() []Invariant {
	return []Invariant{
		{Chain, "each log is one chain of hashes and numbers without a gap"},
		{Format, "commits and events are as their schemas say"},
		{OneWriter, "epochs and attempts grow; who was superseded writes no more"},
		{OneEnd, "each run has one home and one end, and nothing after it"},
		{NoRepeat, "no effect happens twice without somebody having said so"},
		{ReadClaim, "a step that is recorded never runs again"},
		{Waits, "a run that waits goes on once, when all it waits for has come"},
		{Graph, "references name commits that are there; branches end with a reason"},
		{BranchResults, "a fan-out is told what its branches' own logs say"},
		{Budgets, "branches get no more than is left; one call at most exceeds"},
		{Tenant, "no reference leaves its tenant"},
		{Workspace, "a step finds the files that the one before it left"},
		{Blobs, "data and files kept outside of commits are there, by their digest"},
		{Lineage, "each record agrees with its commit, and none is missing"},
		{Results, "each result agrees with the commit that ended its run"},
		{Aliases, "the alias of a run names its home, and the run is there"},
		{Acknowledged, "what clients were told is in the logs"},
		{Secrets, "no credential is stored"},
		{Cleanup, "the end of a run with compensations submits a run of them, which goes first"},
		{Starts, "a run that another one starts is there once, as its start says, and its starter gets its end"},
		{Limits, "a key has no more runs than its limit allows, and a grant ends with its run"},
		{Events, "a wait for an event gets one that was published after the last that its run had, once"},
		{Archives, "nothing follows an archive; a tombstone stands for what was purged"},
	}
}

// Message is one message as stored in a stream.
type Message struct {
	Stream  string
	Seq     uint64
	Subject string
	Time    time.Time
	Header  map[string][]string
	Data    []byte // not kept and not changed
}

// DefaultLimit is the default of Options.Limit.
const DefaultLimit = 100

// Options configure [Run].
type Options struct {
	// Schemas are the schemas of the latest release that may have written.
	Schemas *Schemas
	// Edition is the edition of the events that the schemas describe. Unknown
	// fields of a writer with a later edition are no violation: the report
	// lists them as Newer.
	Edition uint64
	// Tenant limits the audit to one tenant; empty means all.
	Tenant string
	// Open states that the system is still running. The audit then does not
	// require the records that only a settled system has: the ends of branches,
	// results and the complete lineage.
	Open bool
	// Limit is the maximum number of violations per invariant in the report;
	// all are counted. Zero means DefaultLimit.
	Limit int
	// Secrets are credentials that must not be stored anywhere.
	Secrets []string
	// Tools, Models and Clients are witness files, JSON lines of Execution,
	// Request and Told.
	Tools, Models, Clients []io.Reader
}

// Violation is one breach of an invariant.
type Violation struct {
	Invariant string `json:"invariant"`
	Tenant    string `json:"tenant,omitempty"`
	Session   string `json:"session,omitempty"`
	Run       string `json:"run,omitempty"`
	Commit    uint64 `json:"commit,omitempty"` // number in the session's log
	Stream    string `json:"stream,omitempty"`
	Seq       uint64 `json:"seq,omitempty"` // of the message in the stream
	Expected  string `json:"expected"`
	Found     string `json:"found"`
}

// String returns one line.
func (v Violation) String() string {
	var b strings.Builder
	b.WriteString(v.Invariant + ":")
	if v.Session != "" {
		b.WriteString(" " + v.Tenant + "/" + v.Session)
	}
	if v.Commit > 0 {
		fmt.Fprintf(&b, " commit %d", v.Commit)
	}
	if v.Run != "" && v.Run != v.Session {
		b.WriteString(" run " + v.Run)
	}
	if v.Session == "" && v.Stream != "" {
		fmt.Fprintf(&b, " %s/%d", v.Stream, v.Seq)
	}
	return b.String() + ": want " + v.Expected + ", found " + v.Found
}

// Count is the number of checks and violations of one invariant.
type Count struct {
	Invariant  string `json:"invariant"`
	Checked    uint64 `json:"checked"`
	Violations uint64 `json:"violations"`
}

// Report is the result of an audit.
type Report struct {
	Violations []Violation `json:"violations"`
	Counts     []Count     `json:"counts"`          // in the order of Invariants
	Newer      []Newer     `json:"newer,omitempty"` // fields unknown to these schemas
	// Missing are the absent streams. The audit checked neither their contents
	// nor whether they should have any.
	Missing  []string `json:"missing,omitempty"`
	Messages uint64   `json:"messages"`
	Bytes    uint64   `json:"bytes"`
	Commits  uint64   `json:"commits"`
	Events   uint64   `json:"events"`
	Sessions uint64   `json:"sessions"`
	Runs     uint64   `json:"runs"`
	Open     uint64   `json:"open"`    // runs that have not ended
	Foreign  uint64   `json:"foreign"` // messages in event streams other than commits: readers skip them
}

// OK reports whether the report has no violations.
func (r *Report) OK() bool { return len(r.Violations) == 0 }

// ErrInput marks input that cannot be audited: a file that is not a dump, a
// witness that is not JSON, messages out of order.
var ErrInput = errors.New("audit: bad input")

// Run reads messages to their end and returns the report. It fails if reading
// fails, if a schema is missing, or with ErrInput.
func Run(ctx context.Context, messages iter.Seq2[Message, error], opts *Options) (*Report, error) {
	a, err := newAudit(opts)
	if err != nil {
		return nil, err
	}
	for m, err := range messages {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = a.message(m)
		}
		if err != nil {
			return nil, err
		}
	}
	a.finish()
	return a.report, nil
}

// audit is the state of one audit.
type audit struct {
	o      Options
	report *Report
	counts map[string]*Count

	streams map[string]uint64 // the last sequence
	late    bool              // a message of a stream other than the event streams came
	blobs   map[string]string // of the next commit, by digest

	logs      map[key]*log
	runs      map[key]*runState
	links     map[key][]claimOf    // on commits that have not come yet
	promised  map[key]promise      // sessions that a step made
	disposed  map[key][]key        // by the session that decided: the branches it disposed of
	fanouts   map[key]*fanout      // by the session of a branch
	starts    map[key][]startedRun // by the id of a started run
	limits    []limitMark
	events    []eventMark
	delivered map[deliveryKey]bool
	awaited   map[awaitKey]bool // of the homes of runs
	ends      []toldRun         // outcomes of started runs, and of runs that others begin after
	awaits    []awaitedMark
	parts     []partMark // the reports of their parts that runs have applied
	partEnds  map[partKey]spending
	told      []toldBranch
	disposals []disposal
	spreads   []*held
	warm      []warmTold
	newer     map[newerField]*Newer
	repeated  []openQuestion
	witness   witnesses
	heads     headState
	lineage   lineageState
	resultsOf map[key]bool
	anyResult bool
	// resultsFrom is a time in Unix milliseconds: the audit requires only the results
	// of runs that ended from then on, because older results may have expired.
	resultsFrom    int64
	refused        map[key]bool // runs that were not accepted, by a dead letter
	untaken        map[key]untaken
	pending        map[key]bool // runs that are still in TASKS
	aliases        map[key]alias
	hasStream      map[string]bool
	secrets        [][]byte
	purgedArchives map[string]bool // archives that hold purged sessions
}

// key names a session or a run within its tenant.
type key struct{ tenant, id string }

func newAudit(opts *Options) (*audit, error) {
	a := &audit{
		report: &Report{Violations: []Violation{}}, counts: map[string]*Count{}, streams: map[string]uint64{}, blobs: map[string]string{},
		logs: map[key]*log{}, runs: map[key]*runState{}, links: map[key][]claimOf{}, promised: map[key]promise{}, disposed: map[key][]key{},
		fanouts: map[key]*fanout{}, partEnds: map[partKey]spending{}, delivered: map[deliveryKey]bool{}, awaited: map[awaitKey]bool{}, resultsOf: map[key]bool{}, refused: map[key]bool{}, untaken: map[key]untaken{}, pending: map[key]bool{}, aliases: map[key]alias{},
		hasStream: map[string]bool{},
	}
	if opts != nil {
		a.o = *opts
	}
	if a.o.Limit <= 0 {
		a.o.Limit = DefaultLimit
	}
	for _, i := range Invariants() {
		a.counts[i.Name] = &Count{Invariant: i.Name}
	}
	if a.o.Schemas == nil {
		return nil, errors.New("audit: no schemas given")
	}
	var err error
	if a.witness, err = readWitnesses(&a.o); err != nil {
		return nil, err
	}
	a.lineage.init()
	a.heads.init()
	for _, s := range a.o.Secrets {
		if s != "" {
			a.secrets = append(a.secrets, []byte(s))
		}
	}
	return a, nil
}

// message processes the next message.
func (a *audit) message(m Message) error {
	a.hasStream[m.Stream] = true
	if m.Subject == "" { // the stream was read
		if m.Stream == streamResult && m.Seq > 0 && !a.anyResult {
			a.resultsFrom = math.MaxInt64
		}
		a.heads.whole = a.heads.whole || m.Stream == streamBlob
		return nil
	}
	if m.Stream == streamBlob && m.Seq > 0 {
		a.storedBlob(m)
		return nil
	}
	a.report.Messages++
	a.report.Bytes += uint64(len(m.Data))
	if last := a.streams[m.Stream]; m.Stream != streamBlob && m.Seq <= last {
		return fmt.Errorf("%w: message %d of stream %s comes after %d: messages of a stream come in their order", ErrInput, m.Seq, m.Stream, last)
	}
	a.streams[m.Stream] = m.Seq
	if strings.HasPrefix(m.Stream, "EV_") {
		if a.late {
			return fmt.Errorf("%w: message %d of %s comes after those of other streams: the event streams come first", ErrInput, m.Seq, m.Stream)
		}
		a.commit(m)
		return nil
	}
	if m.Stream == streamBlob {
		a.blob(m)
		return nil
	}
	a.late = true
	switch m.Stream {
	case streamLineage:
		a.records(m)
	case streamResult:
		a.result(m)
	case streamDLQ:
		a.deadLetter(m)
	case streamTasks:
		a.task(m)
	case streamAlias:
		a.alias(m)
	default:
		a.scan(m, "", 0)
	}
	return nil
}

const (
	streamBlob    = "BLOB"
	streamLineage = "LINEAGE"
	streamResult  = "RESULT"
	streamDLQ     = "DLQ"
	streamTasks   = "TASKS"
	streamAlias   = "KV_ALIAS"
)

// check counts one check of an invariant, and reports a violation unless it holds.
func (a *audit) check(invariant string, holds bool, v func() Violation) {
	a.counts[invariant].Checked++
	if !holds {
		a.violate(invariant, v())
	}
}

func (a *audit) violate(invariant string, v Violation) {
	c := a.counts[invariant]
	c.Violations++
	if c.Violations <= uint64(a.o.Limit) {
		v.Invariant = invariant
		for _, secret := range a.secrets { // quoted text may contain one
			v.Expected, v.Found = strings.ReplaceAll(v.Expected, string(secret), "…"), strings.ReplaceAll(v.Found, string(secret), "…")
		}
		a.report.Violations = append(a.report.Violations, v)
	}
}

// wanted reports whether a tenant is audited.
func (a *audit) wanted(tenant string) bool { return a.o.Tenant == "" || a.o.Tenant == tenant }

// finish makes the checks that need all messages.
func (a *audit) finish() {
	a.finishNewer()
	for _, stream := range []string{streamLineage, streamResult, streamDLQ, streamTasks, streamAlias} {
		if !a.hasStream[stream] {
			a.report.Missing = append(a.report.Missing, stream)
		}
	}
	a.findPurged()
	a.finishLinks()
	a.finishRuns()
	a.finishBranches()
	finishLimits(a)
	finishAfter(a)
	finishEvents(a)
	a.finishLineage()
	a.finishResults()
	a.finishAliases()
	a.finishHeads()
	a.finishWitnesses()
	a.report.Sessions = uint64(len(a.logs))
	for _, r := range a.runs {
		if r.home != nil {
			a.report.Runs++
			if r.end == nil {
				a.report.Open++
			}
		}
	}
	order := map[string]int{}
	for i, inv := range Invariants() {
		order[inv.Name] = i
		a.report.Counts = append(a.report.Counts, *a.counts[inv.Name])
	}
	slices.SortStableFunc(a.report.Violations, func(x, y Violation) int {
		return cmp.Or(cmp.Compare(order[x.Invariant], order[y.Invariant]), cmp.Compare(x.Tenant, y.Tenant), cmp.Compare(x.Session, y.Session),
			cmp.Compare(x.Commit, y.Commit), cmp.Compare(x.Stream, y.Stream), cmp.Compare(x.Seq, y.Seq), cmp.Compare(x.Run, y.Run),
			cmp.Compare(x.Expected, y.Expected), cmp.Compare(x.Found, y.Found))
	})
}

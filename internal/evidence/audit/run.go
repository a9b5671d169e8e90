package audit

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// logRun is the state of a run in one log.
type logRun struct {
	home      bool
	state     string // "" before the first claim of a session that is not its home
	attempt   uint64
	epoch     uint64 // of the claim
	cancelled bool
	steps     map[string]uint64 // attempt by path; nil once the run has ended here
	intents   map[string]intentMark
	slow      map[string]bool // calls of tools whose time was up, by path
	inbox     []receivedData  // the signals that no step has consumed
	inboxed   uint64
	wake      uint64
	ids       map[string]uint64 // positions in the inbox, by signal id
	suspended *waitingData
	parting   parting
	held      map[string]*held     // fan-outs that are warm-first, by path
	lost      []uint64             // the groups of the attempts lost since the last new step
	group     uint64               // of the attempt that claimed it last
	node      string               // the incarnation of that attempt
	ends      map[string]bool      // started runs whose outcome came
	events    map[string]wait      // its waits for events, by path
	loops     map[string]*loopMark // its loops in this log, by their paths
}

// suspects returns the maximum number of suspects on a node with the next attempt, 0 for
// no limit: two lost attempts set a limit, and each further one halves it.
func (r *logRun) suspects() uint64 {
	n := len(r.lost)
	if n < 2 {
		return 0
	}
	if last := r.lost[n-1]; last > 0 {
		return max(1, last/2)
	}
	return 4
}

// lose records the last attempt as lost if the run was running.
func (r *logRun) lose() {
	if r.state == "running" {
		r.lost = append(r.lost, r.group)
	}
}

// again records the last attempt as lost if a claim shows that, and returns the maximum
// number of suspects on a node with the next one. The incarnation of the last attempt lives
// if it makes the claim itself and reports no death.
func (r *logRun) again(d claimedData) (most uint64) {
	switch {
	case r.node != d.Incarnation, d.Death != "":
		r.lose()
		return r.suspects()
	case len(r.lost) < 2:
		return 0
	}
	return r.group
}

// clear clears the lost attempts, after progress, a release or a review.
func (r *logRun) clear() { r.lost, r.group = nil, 0 }

// parting is the batch with which a run began to wait; it also records the step that
// asks.
type parting struct {
	commit uint64
	batch  string
}

type intentMark struct {
	attempt uint64
	expires int64
	time    int64
}

// runState is the state of a run across all logs.
type runState struct {
	key
	home      *log
	budget    budget // of the task
	most      budget // the highest it ever had
	branch    *branchData
	workflow  string // of the task
	by, via   string // who submitted it
	tags      map[string]string
	statuses  uint64 // the highest number of a status
	attempt   uint64 // the highest that claimed the home
	end       *endMark
	child     string // home that claims of other sessions name
	childSeen *log
	children  uint64 // highest attempt that claimed another session
	cancelled bool
	resolved  bool
	again     map[string]int
	happened  map[string]bool
	unbegun   map[string]string // codes of calls prevented by an approval or a hook, by path
	spent     usage             // of its model calls
	largest   usage
	reported  usage // of its branches, by their reports
	told      int64 // steps of its branches, by their reports
	account   account
	paths     []pathMark
	parts     map[string]partData // the newest report of each part
	warmed    bool                // it has recorded that a model has answered it, or that it waits
	opened    map[string]int      // branches, by the path of the fan-out
	resumes   resumption          // the run that it continues
	limit     *limitData          // that it was submitted with
	limitText string              // its JSON
	keyed     bool                // granted by the limit of its key
	granted   bool                // by that limit
	startedBy *starterData        // the run that started it
	named     []predecessorData   // the runs that it begins after
	after     []predecessorData   // those of them that do not let it begin yet
	follows   bool                // it may not begin yet for them
	awaitedBy []ancestor          // the runs that begin after it
	standing  map[string]outcome  // of branches of such runs, by their sessions
	steps     usage               // of the steps in its home log, except gather and join steps
	deferred  []bool              // its compensations, and whether they always run
	cleans    int                 // the number of compensations of a cleanup run
}

// endMark is the end of a run.
type endMark struct {
	attempt    uint64
	code       string
	finish     [2]string // of the last answer of a model, and the server's word for it
	commit     uint64
	hash       mark
	head       string // of the files, in run.ended
	told       bool   // whether run.ended has the version
	output     string // digest
	error      string // digest
	result     *link
	state      string
	time       int64
	usage      usage
	steps      int64
	lost       usage    // the estimated part of usage
	unrecorded usage    // the part of usage of calls without a step
	total      spending // the current total, see settled
	settled    uint64   // number of settlements
	version    uint64
	workflow   string
}

// pathMark is a recorded step, used to find steps in two logs.
type pathMark struct {
	path uint64 // hash
	log  *log
}

// branchID matches the ids of branches, which are the ids of their sessions.
var branchID = regexp.MustCompile(`^[0-9a-f]{20}-[0-9a-z]+-[0-9a-z]+$`)

// runKey returns the key in a.runs of a run in a log. A log imported from another store may
// have a run with the id of a local one; the tree distinguishes them.
func (l *log) runKey(id string) key {
	if l.tombstone == nil || !l.tombstone.fresh || branchID.MatchString(id) {
		return key{l.tenant, id}
	}
	return key{l.tenant, id + " of " + l.root}
}

// runIn returns the run with an id whose home is a session, or the local run if the session
// has no log.
func (a *audit) runIn(k key, home string) *runState {
	if l := a.logs[key{k.tenant, home}]; l != nil {
		return a.runs[l.runKey(k.id)]
	}
	return a.runs[k]
}

func (a *audit) run(l *log, id string) *runState {
	k := l.runKey(id)
	r := a.runs[k]
	if r == nil {
		r = &runState{key: key{l.tenant, id}}
		a.runs[k] = r
	}
	return r
}

// here returns the state of a run in this log and across all logs.
func (f *folding) here(id string) (*logRun, *runState) {
	r := f.l.runs[id]
	if r == nil {
		r = &logRun{steps: map[string]uint64{}, intents: map[string]intentMark{}}
		f.l.runs[id] = r
	}
	return r, f.a.run(f.l, id)
}

// lives checks that an event of a run does not follow its end, and reports whether to
// process it.
func (f *folding) lives(id string, r *logRun, what string) bool {
	f.a.check(OneEnd, !terminal(r.state), f.says(id, "nothing but late outcomes after run.ended ("+r.state+")", what))
	return !terminal(r.state)
}

func (f *folding) submitted(_ *event, d submittedData) {
	id := d.Task.Run
	r, g := f.here(id)
	f.a.check(OneEnd, g.home == nil, f.says(id, "run.submitted once in all logs", "it again"))
	if g.home != nil {
		return
	}
	f.a.check(Graph, f.l.closed == nil, f.says(id, "no task for a session that was closed", "run.submitted"))
	sealed := f.l.branch != "" && terminal(f.l.runs[f.l.branch].state)
	f.a.check(OneEnd, !sealed, f.says(id, "nothing but its closing after the run of a branch ended", "run.submitted"))
	g.home, g.budget, g.branch, g.workflow, g.by, g.via = f.l, d.Task.Budget, d.Task.Branch, d.Task.Workflow, d.By, d.Via
	g.account.limit, g.most, g.resumes = d.Task.Budget, d.Task.Budget, d.Task.Resumes
	r.home, r.state, g.tags, g.startedBy = true, "queued", d.Task.Tags, d.Task.StartedBy
	g.named, g.after, g.follows = d.Task.After, d.Task.After, len(d.Task.After) > 0
	g.limited(f, d.Limit)
	if of := d.cleans(); of != "" {
		cleanup(f, id, of, &d)
	}
	if d.Task.Branch != nil {
		f.a.check(BranchResults, id == f.l.id, f.says(id, "the run of a branch to have its session's id", id))
		f.l.branch = id
	}
}

func (f *folding) claimed(_ *event, d claimedData) {
	r, g := f.here(d.Run)
	if !f.lives(d.Run, r, fmt.Sprintf("run.claimed, attempt %d", d.Attempt)) {
		return
	}
	f.a.check(OneWriter, d.Epoch == f.c.epoch && d.Incarnation == f.l.incarnation,
		f.says(d.Run, fmt.Sprintf("a claim by the writer, epoch %d of %s", f.c.epoch, f.l.incarnation), fmt.Sprintf("epoch %d of %s", d.Epoch, d.Incarnation)))
	f.a.check(Cleanup, f.l.cleanup == "" || f.l.cleanup == d.Run || d.Home.Session != f.l.id, f.says(d.Run, "cleanup run "+f.l.cleanup+" to go first", "another claim"))
	f.a.check(OneWriter, f.l.active == "" || f.l.active == d.Run, f.says(d.Run, "run "+f.l.active+" to let the session go first", "another claim"))
	if d.Home.Session == f.l.id {
		f.a.check(OneEnd, r.home, f.says(d.Run, "run.submitted before run.claimed in the home log", "none"))
		f.a.check(OneWriter, d.Attempt == r.attempt+1, f.says(d.Run, fmt.Sprintf("attempt %d", r.attempt+1), fmt.Sprintf("run.claimed with attempt %d", d.Attempt)))
		f.a.check(OneWriter, d.Seen == 0 || d.Seen == r.attempt, f.says(d.Run, fmt.Sprintf("a dispatch that saw attempt %d", r.attempt), fmt.Sprintf("a claim by one that saw attempt %d", d.Seen)))
		f.a.check(OneWriter, r.state != "running" || r.epoch != d.Epoch, f.says(d.Run, "the attempt before to end first", "a claim within its epoch"))
		f.a.check(Waits, r.state != "waiting", f.says(d.Run, "run.received with a wake before a waiting run is claimed", "a claim while it waits"))
		f.a.check(Waits, r.state != "needs_review", f.says(d.Run, "run.resolved before a run in review is claimed", "a claim"))
		f.a.check(OneEnd, !r.cancelled, f.says(d.Run, "run.ended after run.cancel_requested", "a claim"))
		f.a.check(Waits, !g.follows, f.says(d.Run, "run.granted before a run is claimed that begins after others", "a claim"))
		f.a.check(Limits, g.limit == nil || g.granted, f.says(d.Run, "run.granted before a run with a limit is claimed", "a claim"))
		f.a.check(Waits, !f.l.quarantined, f.says(d.Run, "the quarantine of the session to be lifted first", "a claim"))
		g.attempt = max(g.attempt, d.Attempt)
		most := r.again(d)
		f.a.check(Waits, (d.Group > 0) == (most > 0) && d.Group <= most,
			f.says(d.Run, fmt.Sprintf("a group of at most %d after %d attempts that were lost, 0 is none", most, len(r.lost)), fmt.Sprintf("run.claimed in a group of %d", d.Group)))
		r.group, r.node = d.Group, d.Incarnation
	} else {
		f.a.check(OneEnd, !r.home, f.says(d.Run, "one home of the run", "a claim that names "+d.Home.Session))
		f.a.check(OneWriter, d.Attempt >= r.attempt, f.says(d.Run, fmt.Sprintf("an attempt of at least %d", r.attempt), fmt.Sprintf("run.claimed with attempt %d", d.Attempt)))
		if g.child == "" {
			g.child = d.Home.Session
		}
		f.a.check(OneEnd, g.child == d.Home.Session, f.says(d.Run, "home "+g.child+" as in other claims", d.Home.Session))
		g.children, g.childSeen = max(g.children, d.Attempt), f.l
	}
	if d.Attempt >= r.attempt {
		r.state, r.attempt, r.epoch, r.suspended = "running", d.Attempt, d.Epoch, nil
	}
	f.l.active = d.Run
}

func (f *folding) released(_ *event, d releasedData) {
	r, _ := f.here(d.Run)
	if !f.lives(d.Run, r, "run.released") {
		return
	}
	f.attempt(d.Run, r, d.Attempt, runReleased)
	if r.state != "running" {
		return
	}
	r.state = "queued"
	r.clear()
	if !r.home && f.l.active == d.Run {
		f.l.active = ""
	}
}

// attempt checks that an event belongs to the attempt that holds the session.
func (f *folding) attempt(id string, r *logRun, attempt uint64, what string) {
	f.a.check(OneWriter, attempt == r.attempt, f.says(id, fmt.Sprintf("nothing but of attempt %d, which claimed the session", r.attempt), fmt.Sprintf("%s of attempt %d", what, attempt)))
}

func (f *folding) review(e *event, d reviewData) {
	r, _ := f.here(d.Run)
	if f.lives(d.Run, r, runReview) {
		f.a.check(Waits, d.Expires > e.time, f.says(d.Run, "a review that expires some day", fmt.Sprintf("expires %d at %d", d.Expires, e.time)))
		f.attempt(d.Run, r, d.Attempt, runReview)
		cutOff := d.Code == "cancelled" && d.Path != "" // its code did not return from a call
		f.a.check(OneEnd, !r.cancelled || cutOff, f.says(d.Run, "run.ended after run.cancel_requested", runReview))
		f.a.check(Waits, r.state != "waiting", f.says(d.Run, "no review of a run that waits", "it"))
		if d.Code == "poison" {
			r.lose()
			alone := 0
			for _, group := range r.lost {
				if group == 1 {
					alone++
				}
			}
			f.a.check(Waits, alone >= 3, f.says(d.Run, "three attempts in a row to be lost while the run was alone", fmt.Sprintf("a review for poison after %d of %d", alone, len(r.lost))))
		}
		r.state = "needs_review"
	}
}

func (f *folding) resolved(_ *event, d resolvedData) {
	f.signal(d.ID, d.Run)
	r, g := f.here(d.Run)
	if !f.lives(d.Run, r, runResolved) {
		return
	}
	f.a.check(Waits, r.state == "needs_review", f.says(d.Run, "run.resolved of a run in review", "it while "+r.state))
	g.resolved = true
	switch d.Decision {
	case "again":
		if g.again == nil {
			g.again = map[string]int{}
		}
		g.again[d.Path]++
	case "happened":
		if g.happened == nil {
			g.happened = map[string]bool{}
		}
		g.happened[d.Path] = true
	case "pin":
	default:
		return
	}
	r.state = "queued"
	r.clear()
}

func (f *folding) cancel(_ *event, d cancelData) {
	f.signal(d.ID, d.Run)
	r, g := f.here(d.Run)
	if f.lives(d.Run, r, runCancel) {
		r.cancelled, g.cancelled = true, true
	}
}

func (f *folding) warned(_ *event, d cancelData) {
	r, _ := f.here(d.Run)
	f.lives(d.Run, r, runWarning)
}

// maxStatus is the largest size of a status, in bytes.
const maxStatus = 4 << 10

// reported checks a status of a run.
func reported(f *folding, _ *event, d statusData) {
	r, g := f.here(d.Run)
	if !f.lives(d.Run, r, runStatus) {
		return
	}
	f.a.check(Format, json.Valid([]byte(d.Value)) && len(d.Value) <= maxStatus && d.N >= g.statuses && r.home,
		f.says(d.Run, fmt.Sprintf("a status in the home log, number %d or later, JSON of at most %d bytes", g.statuses, maxStatus), fmt.Sprintf("number %d of %d bytes", d.N, len(d.Value))))
	g.statuses = max(g.statuses, d.N)
}

func (f *folding) quarantined(_ *event, d quarantinedData) {
	f.signal(d.ID, "")
	f.a.check(Waits, f.l.quarantined == d.Released, f.says("", "a quarantine that was set, or lifted, once", "it again"))
	f.l.quarantined = !d.Released
	verb := "quarantine"
	if d.Released {
		verb = "release"
	}
	f.a.witness.decided(f.l, "session "+f.l.id, verb, d.Says, d.Reason)
}

func (f *folding) ended(e *event, d endedData) {
	r, g := f.here(d.Run)
	if !f.lives(d.Run, r, "run.ended ("+d.State+") again") {
		return
	}
	f.attempt(d.Run, r, d.Attempt, runEnded)
	f.a.check(OneEnd, !r.cancelled || d.State == "cancelled", f.says(d.Run, "state cancelled, since run.cancel_requested came first", d.State))
	if d.State == "succeeded" {
		f.a.check(Waits, r.state == "running", f.says(d.Run, "a run that succeeds to run", "it "+r.state))
	}
	for _, child := range slices.Concat(d.Children, d.Branches) {
		f.a.dispose(f.l, child)
	}
	if r.home {
		f.a.check(Waits, slices.Equal(d.AwaitedBy, g.awaitedBy), f.says(d.Run, fmt.Sprintf("an end for the runs that wait for it, %v", g.awaitedBy), fmt.Sprint(d.AwaitedBy)))
		f.a.check(Waits, d.Code != codeAfter || slices.Contains(f.fails, g), f.says(d.Run, "the end of a run that does not let it begin before "+codeAfter, "none"))
		f.a.check(NoRepeat, d.State != "succeeded" || len(r.intents) == 0 || d.Error != "",
			f.says(d.Run, "an end that says of which calls nobody knows whether they took effect", fmt.Sprintf("it succeeded with %d intents open", len(r.intents))))
		f.endedHome(e, &d, g)
	} else {
		if d.Settle != "" {
			f.a.partEnds[partKey{f.l.key, d.Run, 1}] = spending{d.Lost, d.Steps, d.Usage}
		}
		f.a.check(OneEnd, d.State == "cancelled" && d.Workflow == "",
			f.says(d.Run, "run.ended in its home, or outside of it cancelled and without a workflow", d.State+" of "+d.Workflow+" in a session that is not its home"))
	}
	if d.Result != nil {
		f.a.link(claimOf{from: f.l, seq: f.c.seq, link: *d.Result, what: "what run " + d.Run + " ended with"})
	}
	compensated(f, &d, r, g)
	r.state = d.State
	if f.l.active == d.Run {
		f.l.active = ""
	}
	r.steps, r.intents, r.slow, r.inbox, r.ids, r.suspended, r.held, r.events, r.loops = nil, nil, nil, nil, nil, nil, nil, nil, nil
}

func (f *folding) endedHome(e *event, d *endedData, g *runState) {
	if g.branch != nil {
		want, ok := g.branch.parent()
		f.a.check(BranchResults, ok && d.Parent != nil && *d.Parent == want, func() Violation {
			found := "nobody"
			if d.Parent != nil {
				found = fmt.Sprint(*d.Parent)
			}
			return f.l.says(f.c.seq, d.Run, fmt.Sprintf("the parent run to be told of the end, %v", want), found)
		})
		f.a.check(BranchResults, d.Version == f.l.version, f.says(d.Run, fmt.Sprintf("version %d, that of the session", f.l.version), fmt.Sprintf("run.ended with version %d", d.Version)))
	}
	if d.Version > 0 && g.branch == nil {
		f.a.check(Results, d.Version == f.l.version, f.says(d.Run, fmt.Sprintf("version %d, that of the session", f.l.version), fmt.Sprintf("run.ended with version %d", d.Version)))
	}
	// Ends of branches by older releases have the version and not the files.
	if (d.Head != "" || d.Version > 0 && g.branch == nil) && f.l.headKnown {
		f.a.check(Results, d.Head == f.l.head, f.says(d.Run, "files "+short(f.l.head)+", those of the session", "run.ended with files "+short(d.Head)))
	}
	end := &endMark{
		attempt: d.Attempt, code: d.Code, finish: [2]string{d.Finish, d.Word}, commit: f.c.seq, hash: f.l.marks[len(f.l.marks)-1].hash, state: d.State, time: e.time, usage: d.Usage, steps: d.Steps, lost: d.Lost, unrecorded: d.Unrecorded,
		head: d.Head, told: d.Version > 0,
		version: f.l.version, total: spending{d.Lost, d.Steps, d.Usage}, result: d.Result, output: digestOf(d.Output), error: digestOf(d.Error), workflow: d.Workflow,
	}
	g.end = end
}

// finishRuns makes the checks of runs that need all logs.
func (a *audit) finishRuns() {
	for _, g := range a.runs {
		if g.childSeen != nil && !a.incomplete(g.childSeen) {
			known := g.home != nil && g.home.id == g.child && g.attempt >= g.children
			if !a.o.Open || g.home != nil && g.home.id != g.child {
				a.check(OneEnd, known, func() Violation {
					return g.childSeen.says(0, g.id, fmt.Sprintf("home %s of the run to be claimed by attempt %d", g.child, g.children), "no such claim")
				})
			}
		}
		a.finishPaths(g)
		a.finishBudget(g)
	}
	a.finishTrees()
	a.finishQuestions()
}

// finishPaths finds steps that two logs record.
func (a *audit) finishPaths(g *runState) {
	if len(g.paths) == 0 {
		return
	}
	slices.SortFunc(g.paths, func(x, y pathMark) int {
		switch {
		case x.path < y.path:
			return -1
		case x.path > y.path:
			return 1
		}
		return strings.Compare(x.log.id, y.log.id)
	})
	for i := 1; i < len(g.paths); i++ {
		x, y := g.paths[i-1], g.paths[i]
		a.check(NoRepeat, x.path != y.path || x.log == y.log, func() Violation {
			return y.log.says(0, g.id, "a step recorded in one log", "one step also in the log of "+x.log.id)
		})
	}
}

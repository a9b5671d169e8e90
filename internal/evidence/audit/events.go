package audit

import "encoding/json"

// The kinds of events that the audit folds, see eventKinds. All others are only checked
// against their schema.
const (
	sessionOpened   = "session.opened"
	sessionChunk    = "session.chunk"
	sessionPlaced   = "session.placed"
	sessionJoined   = "session.joined"
	sessionRejected = "session.rejected"
	sessionClosed   = "session.closed"
	writerOpened    = "writer.opened"
	runSubmitted    = "run.submitted"
	runClaimed      = "run.claimed"
	runReleased     = "run.released"
	runReview       = "run.review"
	runResolved     = "run.resolved"
	runCancel       = "run.cancel_requested"
	runWarning      = "run.warning"
	runStatus       = "run.status"
	runWaiting      = "run.waiting"
	runReceived     = "run.received"
	runFanOut       = "run.fanout"
	runStart        = "run.start"
	runSpread       = "run.spread"
	runWarmed       = "run.warmed"
	runDisposed     = "run.disposed"
	runEnded        = "run.ended"
	runSettled      = "run.settled"
	sessionArchived = "session.archived"
	sessionRestored = "session.restored"
	runQuarantined  = "run.quarantined"
	runRebudgeted   = "run.rebudgeted"
	runGranted      = "run.granted"
	keyClosed       = "key.closed"
	runAwaited      = "run.awaited"
	eventPublished  = "event.published"
	eventAwaited    = "event.awaited"
	eventDelivered  = "event.delivered"
	eventReleased   = "event.released"
	limitRequested  = "limit.requested"
	limitDecided    = "limit.decided"
	limitReleased   = "limit.released"
	limitSet        = "limit.set"
	limitBlocked    = "limit.blocked"
	stepIntent      = "step.intent"
	stepDone        = "step.done"
	stepLate        = "step.late"
)

// content reports whether an event advances the session's version.
func content(kind string) bool {
	return kind == sessionChunk || kind == sessionPlaced || kind == sessionJoined
}

type link struct {
	Hash    string `json:"hash"`
	Seq     uint64 `json:"seq"`
	Session string `json:"session"`
	Tenant  string `json:"tenant"`
	Version uint64 `json:"version"`
}

type sessionKey struct {
	Session string `json:"session"`
	Tenant  string `json:"tenant"`
}

type usage struct {
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
	Calls      int64 `json:"calls,omitempty"`
	Input      int64 `json:"input,omitempty"`
	MicroUSD   int64 `json:"micro_usd,omitempty"`
	Output     int64 `json:"output,omitempty"`
}

func (u usage) tokens() int64 { return u.Input + u.Output }

func (u usage) plus(v usage) usage {
	return usage{
		CacheRead: u.CacheRead + v.CacheRead, CacheWrite: u.CacheWrite + v.CacheWrite, Calls: u.Calls + v.Calls,
		Input: u.Input + v.Input, MicroUSD: u.MicroUSD + v.MicroUSD, Output: u.Output + v.Output,
	}
}

// covers reports whether u is at least v in every quantity that a budget can limit.
func (u usage) covers(v usage) bool {
	return u.Calls >= v.Calls && u.tokens() >= v.tokens() && u.MicroUSD >= v.MicroUSD
}

type placement struct {
	Backend string `json:"backend"`
	Head    string `json:"head"`
}

type openedData struct {
	Kind    string `json:"kind"`
	Parents []link `json:"parents"`
	Run     string `json:"run"`
	Step    string `json:"step"`
}

type chunkData struct {
	Placement placement `json:"placement"`
}

type joinedData struct {
	Parents []struct {
		From int  `json:"from"`
		Link link `json:"link"`
		To   int  `json:"to"`
	} `json:"parents"`
	Placement placement `json:"placement"`
	Policy    string    `json:"policy"`
}

type rejectedData struct {
	Branch link   `json:"branch"`
	Reason string `json:"reason"`
	State  string `json:"state"`
}

type closedData struct {
	By     sessionKey `json:"by"`
	Reason string     `json:"reason"`
	State  string     `json:"state"`
}

type writerData struct {
	Edition     uint64 `json:"edition"`
	Epoch       uint64 `json:"epoch"`
	Incarnation string `json:"incarnation"`
}

type budget struct {
	MicroUSD int64 `json:"micro_usd"`
	Steps    int64 `json:"steps"`
	Tokens   int64 `json:"tokens"`
}

type ancestor struct {
	Path    string `json:"path"`
	Run     string `json:"run"`
	Session string `json:"session"`
}

type taskData struct {
	After     []predecessorData `json:"after"`
	Run       string            `json:"run"`
	Workflow  string            `json:"workflow"`
	Budget    budget            `json:"budget"`
	Branch    *branchData       `json:"branch"`
	Resumes   resumption        `json:"resumes"`
	StartedBy *starterData      `json:"started_by"`
	Tags      map[string]string `json:"tags"`
}

type submittedData struct {
	By    string          `json:"by"`
	Limit json.RawMessage `json:"limit"`
	Via   string          `json:"via"`
	Task  taskData        `json:"task"`
}

// limitData is the limit of a run.
type limitData struct {
	Concurrency int64  `json:"concurrency"`
	Holder      string `json:"holder"`
	Log         string `json:"log"`
	Per         int64  `json:"per_ms"`
	// Quota is the quota of the tenant; see quotaData.
	Quota json.RawMessage `json:"quota"`
	Rate  int64           `json:"rate"`
}

// quotaData is the quota of a tenant for its runs.
type quotaData struct {
	Daily    int64  `json:"daily"`
	Log      string `json:"log"`
	Opened   int64  `json:"opened"`
	OpenedOn int64  `json:"opened_on"`
	Setting  uint64 `json:"setting"`
}

// quota returns the quota of a limit, and whether it is the limit itself.
func (l *limitData) quota() (q quotaData, itself bool) {
	if len(l.Quota) == 0 {
		return q, false
	}
	_ = json.Unmarshal(l.Quota, &q) // its schema holds
	return q, q.Log == l.Log
}

type setData struct {
	By    string          `json:"by"`
	Limit json.RawMessage `json:"limit"`
	Open  int64           `json:"open"`
}

type blockedData struct {
	Open    int64  `json:"open"`
	Path    string `json:"path"`
	Quota   uint64 `json:"quota"`
	Run     string `json:"run"`
	Session string `json:"session"`
	Until   int64  `json:"until"`
}

type requestedData struct {
	Limit     json.RawMessage `json:"limit"`
	NotBefore int64           `json:"not_before"`
	Open      int64           `json:"open"`
	Priority  int64           `json:"priority"`
	Run       string          `json:"run"`
	Session   string          `json:"session"`
}

type publishedData struct {
	Event json.RawMessage `json:"event"`
	Open  int             `json:"open"`
}

type publishedEvent struct {
	At  int64  `json:"at"`
	ID  string `json:"id"`
	Seq uint64 `json:"seq"`
}

type awaitedData struct {
	For     []wait `json:"for"`
	N       uint64 `json:"n"`
	Open    int    `json:"open"`
	Run     string `json:"run"`
	Session string `json:"session"`
}

type deliveredData struct {
	Event json.RawMessage `json:"event"`
	Open  int             `json:"open"`
	To    []struct {
		Path    string `json:"path"`
		Run     string `json:"run"`
		Session string `json:"session"`
	} `json:"to"`
}

type decidedData struct {
	Next     *requestedData `json:"next"` // of a run.granted
	Open     int64          `json:"open"`
	Path     string         `json:"path"`
	Rejected string         `json:"rejected"`
	Run      string         `json:"run"`
	Session  string         `json:"session"`
}

type startData struct {
	By   string   `json:"by"`
	Path string   `json:"path"`
	Run  string   `json:"run"`
	Task taskData `json:"task"`
}

// startedValue is the value of a step that starts a run.
type startedValue struct {
	Run string `json:"run"`
}

// runEndData is the outcome of a started run.
type runEndData struct {
	Code    string `json:"code"`
	Run     string `json:"run"`
	Session string `json:"session"`
	State   string `json:"state"`
	Steps   int64  `json:"steps"`
	Usage   usage  `json:"usage"`
	Version uint64 `json:"version"`
}

// resumption names the run that a task continues, and the commit that ended it.
type resumption struct {
	Commit  uint64 `json:"commit"`
	Hash    string `json:"hash"`
	Run     string `json:"run"`
	Session string `json:"session"`
}

// cleans returns the run whose compensations the submitted run executes; "" for none.
func (d *submittedData) cleans() string {
	if d.Task.Resumes.Hash != "" {
		return ""
	}
	return d.Task.Resumes.Run
}

type statusData struct {
	N     uint64 `json:"n"`
	Run   string `json:"run"`
	Value string `json:"value"`
}

type branchData struct {
	Ancestors []ancestor `json:"ancestors"`
	Base      link       `json:"base"`
	Call      string     `json:"call"`
	Name      string     `json:"name"`
	Path      string     `json:"path"`
	Remote    bool       `json:"remote"`
	Root      string     `json:"root"`
	Warm      bool       `json:"warm"`
	Within    []string   `json:"within"`
}

// parent returns the run that is notified of the branch's end: its last ancestor, at the
// gather step.
func (b *branchData) parent() (p parentData, ok bool) {
	fanout, _, ok := cutLast(b.Path, ".")
	if !ok || len(b.Ancestors) == 0 {
		return p, false
	}
	last := b.Ancestors[len(b.Ancestors)-1]
	return parentData{Path: fanout + ".gather", Run: last.Run, Session: last.Session}, true
}

type claimedData struct {
	Attempt     uint64     `json:"attempt"`
	Death       string     `json:"death"`
	Epoch       uint64     `json:"epoch"`
	Group       uint64     `json:"group"`
	Home        sessionKey `json:"home"`
	Incarnation string     `json:"incarnation"`
	Run         string     `json:"run"`
	Seen        uint64     `json:"seen"`
}

type releasedData struct {
	Attempt uint64 `json:"attempt"`
	Run     string `json:"run"`
}

type reviewData struct {
	Attempt uint64 `json:"attempt"`
	Code    string `json:"code"`
	Expires int64  `json:"expires"`
	Path    string `json:"path"`
	Run     string `json:"run"`
}

type resolvedData struct {
	Decision string `json:"decision"`
	ID       string `json:"id"`
	Path     string `json:"path"`
	Run      string `json:"run"`
}

type cancelData struct {
	ID  string `json:"id"`
	Run string `json:"run"`
}

type waitingData struct {
	Any     bool   `json:"any"`
	Attempt uint64 `json:"attempt"`
	For     []wait `json:"for"`
	Run     string `json:"run"`
}

type wait struct {
	After    uint64   `json:"after"`
	Branches []string `json:"branches"`
	Due      int64    `json:"due"`
	Edits    bool     `json:"edits"`
	Kind     string   `json:"kind"`
	Log      string   `json:"log"`
	Name     string   `json:"name"`
	Need     int      `json:"need"`
	Path     string   `json:"path"`
	Schema   string   `json:"schema"`
	Since    int64    `json:"since"`
}

type receivedData struct {
	Branch *struct {
		Code  string `json:"code"`
		Link  link   `json:"link"`
		State string `json:"state"`
		Steps int64  `json:"steps"`
		Usage usage  `json:"usage"`
	} `json:"branch"`
	By     string          `json:"by"`
	Ended  *runEndData     `json:"ended"`
	Event  *publishedEvent `json:"event"`
	ID     string          `json:"id"`
	Kind   string          `json:"kind"`
	N      uint64          `json:"n"`
	Path   string          `json:"path"`
	Reason string          `json:"reason"`
	Run    string          `json:"run"`
	Says   string          `json:"says"`
	Text   string          `json:"text"`
	Value  string          `json:"value"`
	Wake   uint64          `json:"wake"`
}

type fanoutData struct {
	Ancestors []ancestor `json:"ancestors"`
	Base      link       `json:"base"`
	Branches  []struct {
		Call     string `json:"call"`
		Name     string `json:"name"`
		Session  string `json:"session"`
		Workflow string `json:"workflow"`
	} `json:"branches"`
	Budget budget `json:"budget"`
	By     string `json:"by"`
	Path   string `json:"path"`
	Root   string `json:"root"`
	Run    string `json:"run"`
	Warm   bool   `json:"warm"`

	Within   []string `json:"within"`
	Workflow string   `json:"workflow"`
}

type warmedData struct {
	Parent parentData `json:"parent"`
	Run    string     `json:"run"`
}

type parentData struct {
	Path    string `json:"path"`
	Run     string `json:"run"`
	Session string `json:"session"`
}

type disposedData struct {
	Branches []struct {
		Reason  string `json:"reason"`
		Session string `json:"session"`
		State   string `json:"state"`
	} `json:"branches"`
	Run string `json:"run"`
}

type archivedData struct {
	File string `json:"file"`
}

type quarantinedData struct {
	ID       string `json:"id"`
	By       string `json:"by"`
	Reason   string `json:"reason"`
	Released bool   `json:"released"`
	Says     string `json:"says"`
}

type rebudgetedData struct {
	Budget budget `json:"budget"`
	ID     string `json:"id"`
	By     string `json:"by"`
	Reason string `json:"reason"`
	Run    string `json:"run"`
	Says   string `json:"says"`
}

type endedData struct {
	Attempt    uint64      `json:"attempt"`
	AwaitedBy  []ancestor  `json:"awaited_by"`
	Branches   []string    `json:"branches"`
	Children   []string    `json:"children"`
	Code       string      `json:"code"`
	Error      string      `json:"error"`
	Finish     string      `json:"finish"`
	Word       string      `json:"finish_word"`
	Head       string      `json:"head"`
	Lost       usage       `json:"lost"`
	Output     string      `json:"output"`
	Parent     *parentData `json:"parent"`
	Result     *link       `json:"result"`
	Run        string      `json:"run"`
	Settle     string      `json:"settle"`
	State      string      `json:"state"`
	Steps      int64       `json:"steps"`
	Unrecorded usage       `json:"unrecorded"`
	Usage      usage       `json:"usage"`
	Version    uint64      `json:"version"`
	Workflow   string      `json:"workflow"`
}

// spending is the usage of a run, or of a part of it.
type spending struct {
	Lost  usage `json:"lost"`
	Steps int64 `json:"steps"`
	Usage usage `json:"usage"`
}

func (s spending) plus(o spending) spending {
	return spending{s.Lost.plus(o.Lost), s.Steps + o.Steps, s.Usage.plus(o.Usage)}
}

// partData is the report of a fork or a branch.
type partData struct {
	Counted spending `json:"counted"`
	From    string   `json:"from"`
	N       uint64   `json:"n"`
	Spent   spending `json:"spent"`
}

type settledData struct {
	N      uint64      `json:"n"`
	Parent *parentData `json:"parent"`
	Part   partData    `json:"part"`
	Run    string      `json:"run"`
	Told   spending    `json:"told"`
	Total  spending    `json:"total"`
}

type intentData struct {
	Attempt uint64 `json:"attempt"`
	Call    string `json:"call"`
	Expires int64  `json:"expires"`
	Path    string `json:"path"`
	Run     string `json:"run"`
}

type doneData struct {
	Attempt    uint64 `json:"attempt"`
	Call       string `json:"call"`
	Code       string `json:"code"`
	Effect     string `json:"effect"`
	Given      string `json:"given"` // the list of a model's instructions
	HeadAfter  string `json:"head_after"`
	HeadBefore string `json:"head_before"`
	Held       bool   `json:"held"`
	Inbox      uint64 `json:"inbox"`
	Kind       string `json:"kind"`
	Links      []link `json:"links"`
	Name       string `json:"name"`
	Path       string `json:"path"`
	Requests   []any  `json:"requests"`
	Retry      int64  `json:"retry"`
	Row        bool   `json:"row"`
	Run        string `json:"run"`
	Steps      int64  `json:"steps"`
	Unlisted   int    `json:"unlisted"`
	Usage      usage  `json:"usage"`
	Value      string `json:"value"`
}

// read decodes the data of an event, which must match the schema.
func read[T any](data string) (v T, ok bool) {
	return v, json.Unmarshal([]byte(data), &v) == nil
}

// terminal reports whether a state is an end.
func terminal(state string) bool {
	switch state {
	case "succeeded", "failed", "cancelled", "timed_out":
		return true
	}
	return false
}

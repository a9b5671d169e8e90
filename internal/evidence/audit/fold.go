package audit

import (
	"fmt"
	"slices"
)

// folding processes the events of one commit in order.
type folding struct {
	a *audit
	l *log
	c *commit
	i int // of the event

	rows    []string // batches that added a row
	waiting []string // batches of steps that must add a row
	heads   []headMark
	owed    string      // the run whose cleanup run the commit must submit; "" for none
	owing   int         // the number of its compensations
	fails   []*runState // runs with the end of one that must succeed before
	clears  []*runState // runs that the commit must let begin
}

// headMark is the workspace head before a batch.
type headMark struct {
	batch, head string
	known       bool
}

// says returns a function that makes a violation at the commit.
func (f *folding) says(run, expected, found string) func() Violation {
	return func() Violation { return f.l.says(f.c.seq, run, expected, found) }
}

// event folds an event whose data match the schema.
func (f *folding) event(e *event) {
	if f.l.fence != "" && e.kind != writerOpened && e.kind != sessionRestored && ownNamespace(e.kind) {
		f.a.check(Archives, false, f.says("", "nothing but session.restored after session.archived or key.closed", e.kind))
	}
	if n := f.a.lineage.kinds[e.kind]; n > 0 {
		eventKinds[n-1].fold(f, e)
	}
}

// eventKind is the fold function of an event kind and the kinds of its records. The
// records of content events, rejections and fan-outs are required unless the record of a
// step in the same batch covers them. All others are required, except for kinds without
// records.
type eventKind struct {
	event   string
	fold    func(*folding, *event)
	records []string
}

var eventKinds = []eventKind{
	{writerOpened, take((*folding).writer), nil},
	{sessionOpened, take((*folding).opened), []string{"opened", "forked", "detached", "concatenated", "imported"}},
	{sessionChunk, take((*folding).chunk), []string{"chunk"}},
	{sessionPlaced, take((*folding).placed), []string{"placed"}},
	{sessionJoined, take((*folding).joined), []string{"adopted", "merged"}},
	{sessionRejected, take((*folding).rejected), []string{"rejected"}},
	{sessionClosed, take((*folding).closed), []string{"closed"}},
	{sessionArchived, take((*folding).archived), []string{"archived"}},
	{sessionRestored, (*folding).restored, []string{"restored"}},
	{runSubmitted, take((*folding).submitted), []string{"submitted", "queued"}},
	{runClaimed, take((*folding).claimed), []string{"claimed"}},
	{runReleased, take((*folding).released), []string{"released"}},
	{runReview, take((*folding).review), []string{"review"}},
	{runResolved, take((*folding).resolved), []string{"resolved"}},
	{runCancel, take((*folding).cancel), []string{"cancel"}},
	{runWarning, take((*folding).warned), []string{"warning"}},
	{runStatus, take(reported), []string{"status"}},
	{runWaiting, take((*folding).waits), []string{"waiting"}},
	{runReceived, take((*folding).received), []string{"answered", "message", "due", "reported"}},
	{runFanOut, take((*folding).fanOut), []string{"fanned_out"}},
	{runStart, take(starts), nil},
	{runSpread, take((*folding).spread), []string{"spread"}},
	{runWarmed, take((*folding).warmed), nil},
	{runDisposed, take((*folding).disposed), []string{"disposed"}},
	{runEnded, take((*folding).ended), []string{"ended", "released"}}, // the latter outside of its home
	{runSettled, take((*folding).settled), []string{"settled"}},
	{runQuarantined, take((*folding).quarantined), []string{"quarantined", "readmitted"}},
	{runRebudgeted, take((*folding).rebudgeted), []string{"rebudgeted"}},
	{runGranted, take(granted), nil},
	{keyClosed, take(closedKey), nil},
	{runAwaited, take(awaitedBy), nil},
	{eventPublished, take(published), nil},
	{eventAwaited, take(awaited), nil},
	{eventDelivered, take(delivered), nil},
	{eventReleased, take(unawaited), nil},
	{limitRequested, take(requested), nil},
	{limitDecided, take(decided), nil},
	{limitReleased, take(freed), nil},
	{limitSet, take(quotaSet), nil},
	{limitBlocked, take(blocked), nil},
	{stepIntent, take((*folding).intent), []string{"intent"}},
	{stepLate, take((*folding).late), []string{"late"}},
	{stepDone, take((*folding).done), []string{
		"model", "tool", "did", "branched", "merged", "adopted", "rejected", "recalled", "remembered", "placed", "compressed",
		"selected", "fanned_out", "gathered", "awaited", "started",
	}},
}

// take decodes the data of events and folds them.
func take[T any](fold func(*folding, *event, T)) func(*folding, *event) {
	return func(f *folding, e *event) {
		v, ok := read[T](e.data)
		f.a.check(Format, ok, f.says("", e.kind+" with data that decode", clip(e.data, 60)))
		if ok {
			fold(f, e, v)
		}
	}
}

// end checks the commit as a whole.
func (f *folding) end() {
	if f.c.seq == 1 && f.l.opened.Kind == "" && f.l.limit == nil && f.l.events == nil {
		f.a.check(Graph, false, f.says("", "session.opened in commit 1", "none"))
	}
	endAfter(f)
	f.a.check(Cleanup, f.owed == "", f.says(f.owed, "run.submitted of its cleanup run in the commit that ends it", "none"))
	for _, batch := range f.waiting {
		f.a.check(Format, slices.Contains(f.rows, batch), f.says("", "the row that step.done "+batch+" says it added", "none in its batch"))
	}
}

func (f *folding) writer(_ *event, d writerData) {
	f.a.check(OneWriter, f.i == 0, f.says("", "writer.opened as the first event of a commit", fmt.Sprintf("event %d", f.i)))
	f.a.check(OneWriter, d.Epoch > f.l.epoch, f.says("", fmt.Sprintf("an epoch above %d", f.l.epoch), fmt.Sprintf("writer.opened with epoch %d", d.Epoch)))
	f.a.check(OneWriter, d.Epoch == f.c.epoch, f.says("", fmt.Sprintf("epoch %d of its writer.opened", d.Epoch), fmt.Sprintf("a commit of epoch %d", f.c.epoch)))
	f.l.epoch, f.l.incarnation = max(f.l.epoch, d.Epoch), d.Incarnation
}

func (f *folding) opened(_ *event, d openedData) {
	l := f.l
	first := f.i == 0 || f.i == 1 && f.c.events[0].kind == writerOpened
	f.a.check(Graph, l.opened.Kind == "" && first && f.c.seq == 1,
		f.says("", "session.opened once, as the first event of the log", fmt.Sprintf("it as event %d", f.i)))
	if l.opened.Kind != "" {
		return
	}
	l.opened = d
	l.headKnown = true
	switch d.Kind {
	case "fork", "implicit", "detach":
		f.a.check(Graph, len(d.Parents) == 1, f.says("", "one parent of a "+d.Kind, fmt.Sprintf("%d parents", len(d.Parents))))
		l.headKnown = false // it is the parent's head at that commit
	case "concatenate":
		f.a.check(Graph, len(d.Parents) >= 2, f.says("", "two or more parents", fmt.Sprintf("%d", len(d.Parents))))
	case "call":
		f.a.check(Graph, len(d.Parents) == 1, f.says("", "one parent of a call", fmt.Sprintf("%d parents", len(d.Parents))))
	case "leaf":
		f.a.check(Graph, len(d.Parents) == 0, f.says("", "no parents of a leaf", fmt.Sprintf("%d", len(d.Parents))))
	}
	l.version = l.base()
	for _, p := range d.Parents {
		root := ""
		if d.Kind == "fork" || d.Kind == "implicit" || d.Kind == "call" {
			root = f.c.root
		}
		f.a.link(claimOf{from: l, seq: f.c.seq, link: p, what: "its parent", root: root})
	}
}

// grow counts a content event.
func (f *folding) grow(e *event) {
	l := f.l
	if l.closed != nil {
		f.a.check(Graph, false, f.says("", "no content after session.closed ("+l.closed.State+")", e.kind))
	}
	if l.branch != "" && l.runs[l.branch] != nil {
		f.a.check(OneEnd, !terminal(l.runs[l.branch].state), f.says(l.branch, "nothing but its closing after the run of a branch ended", e.kind))
	}
	l.version++
	if e.batch != "" {
		if !slices.ContainsFunc(f.heads, func(h headMark) bool { return h.batch == e.batch }) {
			f.heads = append(f.heads, headMark{e.batch, l.head, l.headKnown})
		}
		run, _, _ := cutBatch(e.batch)
		if r := l.runs[run]; r != nil {
			f.a.check(OneEnd, !terminal(r.state), f.says(run, "no content of a run that has ended", e.kind+" in batch "+e.batch))
			f.a.check(OneEnd, !r.cancelled || slices.ContainsFunc(f.c.events, func(o event) bool { return o.kind == runEnded }),
				f.says(run, "no content of a run after run.cancel_requested", e.kind))
		} else {
			f.a.check(OneWriter, false, f.says(run, "a claim of the session by the run of batch "+e.batch, "none"))
		}
	}
}

func (f *folding) moved(p placement) {
	if p.Backend != "" {
		f.l.head, f.l.headKnown = p.Head, true
		f.head(p.Head)
	}
}

func (f *folding) chunk(e *event, d chunkData) {
	f.rows = append(f.rows, e.batch)
	f.grow(e)
	f.moved(d.Placement)
}

func (f *folding) placed(e *event, d placement) {
	f.grow(e)
	f.l.head, f.l.headKnown = d.Head, true
	f.head(d.Head)
}

func (f *folding) joined(e *event, d joinedData) {
	f.grow(e)
	f.moved(d.Placement)
	for _, p := range d.Parents {
		f.a.check(Graph, p.From >= 0 && p.To >= p.From, f.says("", "a range of chunks", fmt.Sprintf("%d to %d", p.From, p.To)))
		f.a.link(claimOf{from: f.l, seq: f.c.seq, link: p.Link, what: "what it joins"})
		if d.Policy != "concatenate" {
			f.a.dispose(f.l, p.Link.Session)
		}
	}
}

func (f *folding) rejected(_ *event, d rejectedData) {
	f.a.link(claimOf{from: f.l, seq: f.c.seq, link: d.Branch, what: "the branch that it rejects"})
	f.a.check(Graph, d.Reason != "", f.says("", "a reason why branch "+d.Branch.Session+" was "+d.State, "none"))
	f.a.dispose(f.l, d.Branch.Session)
}

func (f *folding) closed(_ *event, d closedData) {
	f.a.check(Graph, f.l.closed == nil, f.says("", "session.closed once", "it again"))
	if d.State != "adopted" && d.State != "merged" {
		f.a.check(Graph, d.Reason != "", f.says("", "a reason why the session was "+d.State, "none"))
	}
	if f.l.closed == nil {
		f.l.closed = &d
	}
}

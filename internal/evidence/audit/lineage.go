package audit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// lineageState is the position of the records of each partition. The codes of a
// log hold the records that its commits require, one byte per event: the number
// of the event's kind and the flags of its record.
type lineageState struct {
	kinds map[string]byte // number of an event's kind
	last  map[string]recordPoint
	whole bool // LINEAGE was read from its first message on
	any   bool
}

// recordPoint is a position in the order of one partition's records.
type recordPoint struct {
	seq uint64
	k   int
}

const (
	codeKind = 0x3f
	codeOwed = 0x40 // the event must have a record
	codeSeen = 0x80
)

func (s *lineageState) init() {
	s.kinds, s.last = map[string]byte{}, map[string]recordPoint{}
	for i, k := range eventKinds {
		s.kinds[k.event] = byte(i + 1) //nolint:gosec // a short table
	}
}

// note stores the records that a commit requires.
func (s *lineageState) note(l *log, c *commit) {
	for i := range c.events {
		e := &c.events[i]
		code := s.kinds[e.kind]
		if code != 0 && eventKinds[code-1].records != nil && !taken(c, e) && !idle(e) {
			code |= codeOwed
		}
		l.codes = append(l.codes, code)
	}
}

// taken reports whether the record of a step may cover an event.
func taken(c *commit, e *event) bool {
	if !content(e.kind) && e.kind != sessionRejected && e.kind != runFanOut {
		return false
	}
	return e.batch != "" && slices.ContainsFunc(c.events, func(o event) bool { return o.kind == stepDone && o.batch == e.batch })
}

// idle reports whether an event is the id of a message whose chunk has the record.
func idle(e *event) bool {
	if e.kind != runReceived {
		return false
	}
	d, ok := read[receivedData](e.data)
	return ok && d.Run == ""
}

// codesOf returns the codes of the events of a commit.
func (l *log) codesOf(seq uint64) []byte {
	m := l.at(seq)
	if m == nil {
		return nil
	}
	end := len(l.codes)
	if next := l.at(seq + 1); next != nil {
		end = int(next.codes)
	}
	return l.codes[m.codes:end]
}

type recordData struct {
	Commit    uint64       `json:"commit"`
	Epoch     uint64       `json:"epoch"`
	Hash      string       `json:"hash"`
	K         int          `json:"k"`
	Kind      string       `json:"kind"`
	Parents   []recordEdge `json:"parents"`
	Partition uint64       `json:"partition"`
	Root      string       `json:"root"`
	Run       string       `json:"run"`
	Seq       uint64       `json:"seq"`
	Session   string       `json:"session"`
	State     string       `json:"state"`
	Tenant    string       `json:"tenant"`
}

// recordEdge is an edge of the graph in a record.
type recordEdge struct {
	Commit  uint64 `json:"commit"`
	Hash    string `json:"hash"`
	Session string `json:"session"`
	Version uint64 `json:"version"`
}

// storedRecords is a message of LINEAGE: the records of one commit, with their
// common fields beside them.
type storedRecords struct {
	recordData
	Records []recordData `json:"records"`
}

// each returns the records with the common fields filled in.
func (m *storedRecords) each() []recordData {
	for i := range m.Records {
		r := &m.Records[i]
		r.Commit, r.Hash, r.Partition, r.Root, r.Seq, r.Session, r.Tenant = m.Commit, m.Hash, m.Partition, m.Root, m.Seq, m.Session, m.Tenant
		if r.Epoch == 0 {
			r.Epoch = m.Epoch
		}
	}
	return m.Records
}

// subject returns the subject under which the records are stored.
func (m *storedRecords) subject() string {
	tree := "rath.lineage." + m.Tenant + "." + m.Root + "."
	for _, r := range m.each() {
		if r.Kind == "quarantined" || r.Kind == "restored" {
			return tree + r.Kind + "." + r.Session
		}
	}
	return tree + "tree"
}

// records processes a message of LINEAGE.
func (a *audit) records(m Message) {
	s := &a.lineage
	if !s.any {
		s.any, s.whole = true, m.Seq == 1
	}
	wrong := func(r *recordData, expected, found string) {
		v := Violation{Stream: m.Stream, Seq: m.Seq, Expected: expected, Found: found}
		if r != nil {
			v.Tenant, v.Session, v.Run, v.Commit = r.Tenant, r.Session, r.Run, r.Commit
		}
		a.violate(Lineage, v)
	}
	a.counts[Lineage].Checked++
	text := string(m.Data)
	if !canonical(text) {
		a.scan(m, "", 0)
		wrong(nil, "records in canonical form", clip(text, 60))
		return
	}
	in, ok := read[storedRecords](text)
	if problem := a.o.Schemas.records.check(text); problem != "" {
		a.scan(m, "", 0)
		wrong(nil, "records as in records.v1", problem)
		return
	}
	if !ok {
		wrong(nil, "records that decode", clip(text, 60))
		return
	}
	if !a.wanted(in.Tenant) {
		return
	}
	a.scan(m, in.Session, in.Commit)
	if want := in.subject(); m.Subject != want {
		wrong(&in.recordData, "subject "+want, m.Subject)
	}
	for i, r := range in.each() {
		if i > 0 && r.K <= in.Records[i-1].K {
			wrong(&r, fmt.Sprintf("a record of an event above %d", in.Records[i-1].K), fmt.Sprintf("event %d", r.K))
		}
		a.record(r, wrong)
	}
}

// record compares a record with its commit.
func (a *audit) record(r recordData, wrong func(*recordData, string, string)) {
	l := a.logs[key{r.Tenant, r.Session}]
	if l != nil && l.tombstone != nil && l.tombstone.covers(l, &r) {
		return
	}
	if l == nil || l.seq < r.Commit {
		if !a.o.Open {
			wrong(&r, fmt.Sprintf("commit %d of the session", r.Commit), "no such commit")
		}
		return
	}
	c := l.at(r.Commit)
	if c == nil {
		return // the log was cut, which is reported
	}
	stream := l.stream[:strings.LastIndexByte(l.stream, '_')+1] + strconv.FormatUint(r.Partition, 10)
	switch {
	case stream != l.stream || r.Seq != c.token:
		wrong(&r, fmt.Sprintf("partition and seq of the commit, %s/%d", l.stream, c.token), fmt.Sprintf("%s/%d", stream, r.Seq))
		return
	case markOf(r.Hash) != c.hash || len(r.Hash) != 64:
		wrong(&r, fmt.Sprintf("hash %x of the commit", c.hash[:4]), clip(r.Hash, 8))
	case r.Root != l.root:
		wrong(&r, "root "+l.root, r.Root)
	case r.Epoch < l.epochAt(r.Commit) || r.Epoch > l.epochAt(r.Commit) && r.Kind != "placed": // which may hold the epoch of a lease of the run
		wrong(&r, fmt.Sprintf("epoch %d of the commit", l.epochAt(r.Commit)), fmt.Sprintf("%d", r.Epoch))
	}
	codes := l.codesOf(r.Commit)
	if r.K >= len(codes) {
		wrong(&r, fmt.Sprintf("one of %d events", len(codes)), fmt.Sprintf("event %d", r.K))
		return
	}
	a.lineage.place(a, l, &r, codes, wrong)
}

// place checks a record's position in the order of its partition.
func (s *lineageState) place(a *audit, l *log, r *recordData, codes []byte, wrong func(*recordData, string, string)) {
	last, known := s.last[l.stream]
	if known && (r.Seq < last.seq || r.Seq == last.seq && r.K <= last.k) {
		// Readers drop it, so they must have it already.
		if codes[r.K]&codeSeen == 0 && s.whole {
			wrong(r, fmt.Sprintf("a record above %d.%d of %s, or one again", last.seq, last.k, l.stream), fmt.Sprintf("%d.%d for the first time", r.Seq, r.K))
		}
		return
	}
	s.last[l.stream] = recordPoint{r.Seq, r.K}
	if n := codes[r.K] & codeKind; n > 0 {
		kind := eventKinds[n-1]
		if !slices.Contains(kind.records, r.Kind) {
			wrong(r, "a record of "+kind.event, "kind "+r.Kind)
		}
		if expected, found := a.otherwise(l, kind.event, r); expected != "" {
			wrong(r, expected, found)
		}
	}
	codes[r.K] |= codeSeen
	if !known && !s.whole {
		s.forgive(a, l.stream, r.Seq, r.K)
	}
}

// scratch lists the reasons of forks that were only read, never meant for a merge.
var scratch = []string{"it only judged", "it only summarised", "notes were taken on it", "nothing was decided on it"}

// endOf returns the state of a closed branch in its record: a branch that was only read
// is "scratch", not "rejected".
func endOf(state, reason string) string {
	if state == "rejected" && (slices.Contains(scratch, reason) || strings.HasPrefix(reason, "notes not taken: ")) {
		return "scratch"
	}
	return state
}

// otherwise returns the first difference between a record and the log in the fields by
// which users find sessions and runs: the edges of the graph, the run's home, and the
// outcomes of runs and branches. Both strings are "" if they agree.
func (a *audit) otherwise(l *log, event string, r *recordData) (expected, found string) {
	switch event {
	case sessionOpened:
		var edges []recordEdge
		for _, p := range l.opened.Parents {
			edges = append(edges, recordEdge{p.Seq, p.Hash, p.Session, p.Version})
		}
		if l.opened.Kind != "" && !slices.Equal(r.Parents, edges) {
			return fmt.Sprintf("the parents of the session, %v", edges), fmt.Sprint(r.Parents)
		}
		return "", ""
	case sessionClosed:
		if l.closed == nil {
			return "", ""
		}
		if state := endOf(l.closed.State, l.closed.Reason); r.State != state {
			return "state " + state + " of session.closed", r.State
		}
		return "", ""
	}
	if ns, _, _ := strings.Cut(event, "."); r.Run == "" || ns != "run" && ns != "step" {
		return "", ""
	}
	if l.runs[r.Run] == nil {
		return "a run that the log tells of", "run " + r.Run
	}
	g := a.runs[l.runKey(r.Run)]
	switch {
	case event == runSubmitted && g.home != l:
		return "a run with its home here", "run " + r.Run
	case r.Kind == "ended" && (g.end == nil || g.home != l || g.end.commit != r.Commit):
		return "the run that the commit ends", "run " + r.Run
	case r.Kind == "ended" && g.end.state != r.State:
		return "state " + g.end.state + " of run.ended", r.State
	}
	return "", ""
}

// forgive clears the required records before the first record that still exists.
func (s *lineageState) forgive(a *audit, stream string, seq uint64, k int) {
	for _, l := range a.logs {
		if l.stream != stream {
			continue
		}
		for i := range l.marks {
			if l.marks[i].token > seq {
				break
			}
			codes := l.codesOf(uint64(i) + 1)
			if l.marks[i].token == seq {
				codes = codes[:min(k, len(codes))]
			}
			for j := range codes {
				codes[j] &^= codeOwed
			}
		}
	}
}

// finishLineage looks for events without a record.
func (a *audit) finishLineage() {
	if !a.hasStream[streamLineage] {
		return
	}
	for _, l := range a.logs {
		last := a.lineage.last[l.stream]
		for i := range l.marks {
			token := l.marks[i].token
			if a.o.Open && token >= last.seq {
				break // its record may not have been written yet
			}
			for k, code := range l.codesOf(uint64(i) + 1) {
				if code&codeOwed == 0 {
					continue
				}
				a.check(Lineage, code&codeSeen != 0, func() Violation {
					return l.says(uint64(i)+1, "", fmt.Sprintf("a record of event %d, %s", k, eventKinds[code&codeKind-1].event), "none in LINEAGE")
				})
			}
		}
	}
}

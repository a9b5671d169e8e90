package audit

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// log is the state of one session after its commits so far.
type log struct {
	key
	stream      string
	last        uint64 // sequence of the last message on the subject
	root        string
	seq         uint64
	hash        string // of the last commit
	epoch       uint64 // of the last writer.opened
	edition     uint64 // likewise
	incarnation string
	version     uint64
	opened      openedData
	head        string // of the workspace
	headKnown   bool
	closed      *closedData
	branch      string // the branch's run, if the session is a branch of a fan-out
	active      string // the run that holds the session
	quarantined bool
	cleanup     string        // the cleanup run that goes first; "" for none
	limit       *limitLog     // of the log of a key
	events      *publishedLog // of the log of an event
	signals     []signalMark
	fence       string     // the archive that ends the log, or key.closed; "" for neither
	tombstone   *tombstone // the tombstone that the log begins with
	runs        map[string]*logRun
	marks       []commitMark // of the commits from 1 on
	epochs      []epochMark  // the start of each epoch, oldest first
	codes       []byte       // one for each event, see lineageState
}

// commitMark is the part of a commit that stays in memory.
type commitMark struct {
	hash    mark
	token   uint64 // sequence in the stream
	version uint32 // after it
	codes   uint32 // the index of the first code of its events
}

// epochMark is the epoch of the commits from a commit on.
type epochMark struct{ commit, epoch uint64 }

// epochAt returns the epoch of a commit, or 0 before the first one.
func (l *log) epochAt(seq uint64) uint64 {
	i, found := slices.BinarySearchFunc(l.epochs, seq, func(m epochMark, seq uint64) int { return cmp.Compare(m.commit, seq) })
	if !found {
		i--
	}
	if i < 0 {
		return 0
	}
	return l.epochs[i].epoch
}

// at returns the mark of a commit, or nil if the commit is missing.
func (l *log) at(seq uint64) *commitMark {
	if seq == 0 || seq > uint64(len(l.marks)) || l.marks[seq-1].hash == (mark{}) {
		return nil
	}
	return &l.marks[seq-1]
}

// before returns the version before a commit.
func (l *log) before(seq uint64) uint64 {
	if m := l.at(seq - 1); m != nil {
		return uint64(m.version)
	}
	if seq == 1 {
		return l.base()
	}
	return 0
}

// base is the version that the session starts at.
func (l *log) base() uint64 {
	switch l.opened.Kind {
	case "fork", "implicit", "detach":
		if len(l.opened.Parents) == 1 {
			return l.opened.Parents[0].Version
		}
	}
	return 0
}

// says returns a violation at a commit of the log.
func (l *log) says(seq uint64, run, expected, found string) Violation {
	v := Violation{Tenant: l.tenant, Session: l.id, Run: run, Commit: seq, Stream: l.stream, Expected: expected, Found: found}
	if m := l.at(seq); m != nil {
		v.Seq = m.token
	}
	return v
}

// keyOf reads tenant and session from a subject of an event stream.
func keyOf(stream, subject string) (key, bool) {
	parts := strings.Split(subject, ".")
	if len(parts) != 6 || parts[0] != "rath" || parts[1] != "ev" || stream != "EV_"+parts[2]+"_"+parts[3] || !isID(parts[4]) || !isID(parts[5]) {
		return key{}, false
	}
	return key{parts[4], parts[5]}, true
}

const (
	headerExpected = "Nats-Expected-Last-Subject-Sequence"
	headerID       = "Nats-Msg-Id"
)

// commit processes a message of an event stream.
func (a *audit) commit(m Message) {
	blobs := a.blobs
	if len(blobs) > 0 {
		a.blobs = map[string]string{}
	}
	k, ok := keyOf(m.Stream, m.Subject)
	if !ok {
		a.scan(m, "", 0)
		a.violate(Chain, Violation{Stream: m.Stream, Seq: m.Seq, Expected: "a subject rath.ev.<generation>.<partition>.<tenant>.<session> of this stream", Found: m.Subject})
		return
	}
	if !a.wanted(k.tenant) {
		return
	}
	l := a.logs[k]
	if l == nil {
		l = &log{key: k, stream: m.Stream, hash: strings.Repeat("0", 64), runs: map[string]*logRun{}}
	}
	a.place(l, m)
	before := l.last
	l.last = m.Seq
	raw := string(m.Data)
	c, ok := readCommit(raw)
	if !ok {
		a.foreign(l, m)
		if len(l.marks) > 0 {
			a.logs[k] = l
		}
		return
	}
	a.scan(m, l.id, c.seq)
	a.logs[k] = l
	sum := sha256.Sum256(m.Data)
	hash := hex.EncodeToString(sum[:])
	if l.seq == 0 && l.tombstone == nil && c.seq > 1 && c.tenant == l.tenant && c.session == l.id && c.events[len(c.events)-1].kind == sessionArchived {
		a.tombstone(l, m, &c, hash)
		return
	}
	a.guarded(l, m, &c, before)
	if l.late(&c, hash) {
		a.report.Foreign++
		return
	}
	if !a.successor(l, m, &c, hash) {
		return
	}
	l.marks = append(l.marks, commitMark{hash: mark(sum[:16]), token: m.Seq, version: uint32(l.version), codes: uint32(len(l.codes))}) //nolint:gosec // bounded by the size of a stream
	l.seq, l.hash = c.seq, hash
	a.report.Commits++
	a.fold(l, m, &c, blobs)
	a.broughtBack(l, m, &c)
	l.marks[len(l.marks)-1].version = uint32(l.version) //nolint:gosec // likewise
	a.settleLinks(l)
}

// place checks that a session has one log, in the partition that its id names.
func (a *audit) place(l *log, m Message) {
	a.check(Chain, l.stream == m.Stream, func() Violation {
		v := l.says(0, "", "all commits of a session in one stream ("+l.stream+")", "a message in "+m.Stream)
		v.Stream, v.Seq = m.Stream, m.Seq
		return v
	})
	if place, ok := placeOf(l.id); ok {
		want := "EV_" + strings.ReplaceAll(place, ".", "_")
		a.check(Chain, want == m.Stream, func() Violation {
			return Violation{Tenant: l.tenant, Session: l.id, Stream: m.Stream, Seq: m.Seq, Expected: "the log in stream " + want + ", as the id says", Found: m.Stream}
		})
	}
}

// foreign counts a message that is not a commit, which readers skip. A message that
// looks like a commit is a violation, because its writer lost a commit.
func (a *audit) foreign(l *log, m Message) {
	a.report.Foreign++
	a.scan(m, l.id, 0)
	a.check(Chain, !looksLikeCommit(m.Data), func() Violation {
		v := l.says(0, "", "a commit in canonical form, or something that is plainly none", "bytes that were meant as a commit and that every reader skips")
		v.Stream, v.Seq, v.Commit = m.Stream, m.Seq, l.seq+1
		return v
	})
}

// guarded checks that the message was stored under a compare-and-set.
func (a *audit) guarded(l *log, m Message, c *commit, before uint64) {
	want := strconv.FormatUint(before, 10)
	got := "no such header"
	if h := m.Header[headerExpected]; len(h) > 0 {
		got = h[0]
	}
	a.check(OneWriter, got == want, func() Violation {
		v := l.says(c.seq, "", headerExpected+" "+want, got)
		v.Stream, v.Seq = m.Stream, m.Seq
		return v
	})
	a.check(OneWriter, len(m.Header[headerID]) == 0, func() Violation {
		v := l.says(c.seq, "", "no message id: a duplicate would be acknowledged and lost", headerID+" "+strings.Join(m.Header[headerID], " "))
		v.Stream, v.Seq = m.Stream, m.Seq
		return v
	})
}

// successor checks that a commit is the log's next one. Readers and the audit skip
// any other commit, which is a violation because its writer received an acknowledgement.
func (a *audit) successor(l *log, m Message, c *commit, hash string) bool {
	wrong := func(invariant, expected, found string) bool {
		a.violate(invariant, Violation{
			Tenant: l.tenant, Session: l.id, Commit: c.seq, Stream: m.Stream, Seq: m.Seq, Expected: expected, Found: found + ": every reader skips it",
		})
		return false
	}
	a.counts[Chain].Checked++
	if c.tenant != l.tenant || c.session != l.id {
		invariant := Chain
		if c.tenant != l.tenant {
			invariant = Tenant
		}
		return wrong(invariant, "a commit of "+l.tenant+"/"+l.id+" on its subject", "one of "+c.tenant+"/"+c.session)
	}
	switch {
	case l.seq == 0 && c.seq > 1:
		a.violate(Chain, Violation{Tenant: l.tenant, Session: l.id, Commit: c.seq, Stream: m.Stream, Seq: m.Seq, Expected: "a log that begins with commit 1", Found: fmt.Sprintf("commit %d first", c.seq)})
		l.epoch, l.root = c.epoch, c.root
		l.marks = make([]commitMark, min(c.seq-1, 1<<20))
		if uint64(len(l.marks)) != c.seq-1 {
			return false
		}
		return true
	case c.seq <= l.seq:
		if m := l.at(c.seq); m != nil && m.hash == markOf(hash) {
			return wrong(OneWriter, "each commit stored once", fmt.Sprintf("commit %d again", c.seq))
		}
		return wrong(OneWriter, fmt.Sprintf("commit %d to follow commit %d", l.seq+1, l.seq), fmt.Sprintf("another commit %d, of epoch %d: two writers", c.seq, c.epoch))
	case c.seq != l.seq+1:
		return wrong(Chain, fmt.Sprintf("commit %d", l.seq+1), fmt.Sprintf("commit %d", c.seq))
	case c.prev != l.hash:
		return wrong(Chain, fmt.Sprintf("prev %.8s, the hash of commit %d", l.hash, l.seq), fmt.Sprintf("%.8s", c.prev))
	}
	return true
}

// fold processes the events of a commit.
func (a *audit) fold(l *log, m Message, c *commit, blobs map[string]string) {
	if l.root == "" {
		l.root = c.root
	}
	a.check(Graph, c.root == l.root, func() Violation { return l.says(c.seq, "", "root "+l.root+" as in commit 1", c.root) })
	if c.events[0].kind != writerOpened {
		a.check(OneWriter, l.epoch > 0, func() Violation { return l.says(c.seq, "", "writer.opened before all else", c.events[0].kind) })
		a.check(OneWriter, c.epoch == l.epoch, func() Violation {
			return l.says(c.seq, "", fmt.Sprintf("epoch %d, of the last writer.opened", l.epoch), fmt.Sprintf("epoch %d", c.epoch))
		})
	}
	if n := len(l.epochs); n == 0 || l.epochs[n-1].epoch != c.epoch {
		l.epochs = append(l.epochs, epochMark{c.seq, c.epoch})
	}
	a.lineage.note(l, c)
	f := folding{a: a, l: l, c: c}
	for i := range c.events {
		e := &c.events[i]
		a.report.Events++
		if !a.load(l, c.seq, e, blobs) || !a.fits(l, c.seq, e) {
			continue
		}
		f.i = i
		f.event(e)
	}
	f.end()
	a.tenants(l, m, c)
}

// load loads the data of an event from its blob, if it has one.
func (a *audit) load(l *log, seq uint64, e *event, blobs map[string]string) bool {
	if e.blob == "" {
		return true
	}
	data, there := blobs[e.blob]
	a.check(Blobs, there, func() Violation { return l.says(seq, "", "blob "+e.blob+", the data of "+e.kind, "nothing") })
	if !there {
		return false
	}
	ok := uint64(len(data)) == e.size && canonical(data)
	a.check(Blobs, ok, func() Violation {
		return l.says(seq, "", fmt.Sprintf("%d bytes of canonical JSON in blob %s", e.size, e.blob), fmt.Sprintf("%d other bytes", len(data)))
	})
	e.data = data
	return ok
}

// fits checks an event against its schema.
func (a *audit) fits(l *log, seq uint64, e *event) bool {
	s := a.o.Schemas.events[e.kind]
	wrong := ""
	if e.kind == writerOpened {
		d, _ := read[writerData](e.data) // the schema rejects data that do not decode
		l.edition = d.Edition
	}
	switch {
	case s == nil && !ownNamespace(e.kind):
		return false // readers skip unknown events
	case s == nil:
		wrong = "unknown kind"
	case e.schema != 1:
		wrong = fmt.Sprintf("schema %d", e.schema)
	default:
		wrong = s.checkNewer(e.data, a.newerThanKnown(l, e.kind))
	}
	a.check(Format, wrong == "", func() Violation { return l.says(seq, "", e.kind+" as in commit.v1", wrong) })
	return wrong == ""
}

func ownNamespace(kind string) bool {
	ns, _, _ := strings.Cut(kind, ".")
	return slices.Contains([]string{"session", "run", "step", "writer"}, ns)
}

// tenants checks the tenant of each reference in any field of the events. The pattern
// matches no text, because quotes inside texts are escaped.
func (a *audit) tenants(l *log, m Message, c *commit) {
	const field = `"tenant":"`
	for i := range c.events {
		data := c.events[i].data
		for {
			at := strings.Index(data, field)
			if at < 0 {
				break
			}
			if at == 0 || data[at-1] != '{' && data[at-1] != ',' {
				data = data[at+len(field):]
				continue
			}
			data = data[at+len(field):]
			tenant, _, _ := strings.Cut(data, `"`)
			a.check(Tenant, tenant == l.tenant, func() Violation {
				return l.says(c.seq, "", "references within tenant "+l.tenant, c.events[i].kind+" names tenant "+tenant)
			})
		}
	}
}

// blob stores bytes that the next commit refers to.
func (a *audit) blob(m Message) {
	digest := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	sum := sha256.Sum256(m.Data)
	got := hex.EncodeToString(sum[:])
	a.check(Blobs, got == digest, func() Violation {
		return Violation{Stream: m.Stream, Seq: m.Seq, Expected: "bytes with the digest " + digest, Found: got}
	})
	a.scan(m, "", 0)
	if got == digest {
		a.blobs[digest] = string(m.Data)
	}
}

func base36(s string) (string, bool) {
	n, err := strconv.ParseUint(s, 36, 32)
	return strconv.FormatUint(n, 10), err == nil
}

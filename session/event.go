package session

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/canonical"
)

// Event is one recorded fact. Kind is namespaced; this package folds
// "session.*", package run folds "run.*", "step.*" and "writer.*", and a fold
// skips what is not its own. Data is canonical JSON: no white space, keys
// sorted, no floats, valid UTF-8.
type Event struct {
	Kind   string
	Schema int
	// Batch is "run/step" of what recorded the event: a batch that is in the
	// log already is not recorded again. It is empty outside of steps.
	Batch string
	Time  time.Time // millisecond precision
	Data  string
	// Blob names where Data is kept when it is too large for a commit. A log
	// that offloads data sets it; readers of such a log find both.
	Blob blob.Ref

	made *made
}

// made is the value that an event's data were encoded from.
type made struct {
	data string // as encoded: what is put in its place later counts instead
	what any
}

// Of returns e with the value that its data were encoded from, which readers in this
// process take instead of decoding the data. The data have to read back as exactly that
// value, and from the call on the value does not change. A stored event has none.
func (e Event) Of(what any) Event {
	e.made = &made{e.Data, what}
	return e
}

// Made returns the value that the data of e were encoded from, nil if it is not known.
func (e Event) Made() any {
	if e.made == nil || e.made.data != e.Data {
		return nil
	}
	return e.made.what
}

// Equal reports whether both record the same.
func (e Event) Equal(o Event) bool {
	sameTime := e.Time.Equal(o.Time)
	e.made, o.made, e.Time, o.Time = nil, nil, time.Time{}, time.Time{}
	return sameTime && e == o
}

// The content events. Only they advance Version.
const (
	KindChunk  = "session.chunk"
	KindPlaced = "session.placed"
	KindJoined = "session.joined"
)

// The other events of this package's namespace.
const (
	KindOpened   = "session.opened"
	KindRejected = "session.rejected" // of the parent: a branch's disposition
	KindClosed   = "session.closed"   // of the branch: nothing follows it
)

// Schema is the schema number that this release writes for session events.
const Schema = 1

// IsContent reports whether an event of this kind advances Version.
func IsContent(kind string) bool {
	return kind == KindChunk || kind == KindPlaced || kind == KindJoined
}

// Link is a stored reference into another session's log: the value and the
// commit that made it.
type Link struct {
	Ref
	Seq   uint64
	Hash  Hash
	Token uint64
}

type wireLink struct {
	Hash    Hash    `json:"hash"`
	Seq     uint64  `json:"seq"`
	Session ID      `json:"session"`
	Tenant  Tenant  `json:"tenant"`
	Token   uint64  `json:"token"`
	Version Version `json:"version"`
}

// MarshalJSON writes the canonical form.
func (l Link) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, 224)
	b = append(b, `{"hash":"`...)
	b = hex.AppendEncode(b, l.Hash[:])
	b = append(b, `","seq":`...)
	b = strconv.AppendUint(b, l.Seq, 10)
	b = append(b, `,"session":`...)
	b = canonical.AppendString(b, string(l.ID))
	b = append(b, `,"tenant":`...)
	b = canonical.AppendString(b, string(l.Tenant))
	b = append(b, `,"token":`...)
	b = strconv.AppendUint(b, l.Token, 10)
	b = append(b, `,"version":`...)
	b = strconv.AppendUint(b, uint64(l.Version), 10)
	return append(b, '}'), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (l *Link) UnmarshalJSON(b []byte) error {
	var w wireLink
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*l = w.link()
	return nil
}

func (w *wireLink) link() Link {
	return Link{Ref{Key{w.Tenant, w.Session}, w.Version}, w.Seq, w.Hash, w.Token}
}

// The ways a session comes to be.
const (
	OpenLeaf     = "leaf"        // from nothing
	OpenFork     = "fork"        // a branch of a parent
	OpenImplicit = "implicit"    // a branch, because an older value was extended
	OpenDetach   = "detach"      // a copy of another session that is not its branch
	OpenMerge    = "concatenate" // of two sessions that need not be related
	OpenCompress = "compress"    // a summary that starts over
	OpenImport   = "import"      // from another system's file
	OpenCall     = "call"        // for the work of a tool call of a parent, of which it has no rows
)

// Opening is the first event of a session.
type Opening struct {
	Kind    string `json:"kind"`
	Name    string `json:"name,omitempty"` // of the branch, or of the import
	Parents []Link `json:"parents,omitempty"`
	Run     string `json:"run,omitempty"`
	// Source is what the file of an import says beside its chunks. Package
	// internal/evidence/openrath writes and reads it.
	Source string `json:"source,omitempty"`
	Step   string `json:"step,omitempty"`
}

// The ways a branch ends.
const (
	ClosedAdopted   = "adopted"
	ClosedMerged    = "merged"
	ClosedRejected  = "rejected"
	ClosedCancelled = "cancelled"
	ClosedFailed    = "failed"
)

// Closing ends a session for good.
type Closing struct {
	By     Key    `json:"by,omitzero"` // the parent that decided
	Reason string `json:"reason,omitempty"`
	State  string `json:"state"`
}

// The merge policies that a join records.
const (
	JoinAdopt         = "adopt"
	JoinSinceAncestor = "since_ancestor"
	JoinConcatenate   = "concatenate"
	JoinReplace       = "replace"   // the parent stands for everything before it
	JoinSummarise     = "summarise" // refers to the parents; a chunk beside it says what they came to
)

// Join adds chunks of other sessions to this one, by reference: of each
// parent the chunks [From, To).
type Join struct {
	Parents   []Part    `json:"parents"`
	Placement Placement `json:"placement,omitzero"` // where the work goes on; zero leaves it
	Policy    string    `json:"policy"`
	Reason    string    `json:"reason,omitempty"`
	Usage     Usage     `json:"usage,omitzero"` // what the parents consumed since the ancestor
}

// Closes returns how the join ends the branches that it takes chunks of:
// ClosedAdopted or ClosedMerged; "" if they stay as they are.
func (j Join) Closes() string {
	switch j.Policy {
	case JoinAdopt, JoinReplace:
		return ClosedAdopted
	case JoinConcatenate:
		return ""
	}
	return ClosedMerged
}

// Part is what a join takes of one parent.
type Part struct {
	From int  `json:"from"`
	Link Link `json:"link"`
	To   int  `json:"to"`
}

type chunkData struct {
	Agent     string    `json:"agent,omitempty"`
	Body      *blob.Ref `json:"body,omitempty"`
	CallID    string    `json:"call_id,omitempty"`
	Calls     calls     `json:"calls,omitempty"`
	Failed    bool      `json:"failed,omitempty"`
	Images    []Image   `json:"images,omitempty"`
	Kind      Kind      `json:"kind"`
	Name      string    `json:"name,omitempty"`
	Node      string    `json:"node,omitempty"`
	Opaque    string    `json:"opaque,omitempty"`
	Placement Placement `json:"placement,omitzero"`
	Run       string    `json:"run,omitempty"`
	Step      string    `json:"step,omitempty"`
	Text      string    `json:"text"`
	Usage     Usage     `json:"usage,omitzero"`
	Workflow  string    `json:"workflow,omitempty"`
}

// calls are tool calls as events have them: with their keys sorted.
type calls []ToolCall

// MarshalJSON writes the canonical form.
func (cs calls) MarshalJSON() ([]byte, error) {
	n := 2
	for _, c := range cs {
		n += len(c.Args) + len(c.ID) + len(c.Name) + 40
	}
	b := append(make([]byte, 0, n+n/8), '[')
	for i, c := range cs {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"args":`...)
		b = canonical.AppendString(b, c.Args)
		b = append(b, `,"id":`...)
		b = canonical.AppendString(b, c.ID)
		b = append(b, `,"name":`...)
		b = canonical.AppendString(b, c.Name)
		b = append(b, '}')
	}
	return append(b, ']'), nil
}

// ChunkEvent records that a chunk was added.
func ChunkEvent(c Chunk) Event {
	r := c.row()
	d := chunkData{
		Agent: r.origin.Agent, CallID: r.callID, Calls: r.calls, Failed: r.failed, Images: r.images, Kind: r.kind, Name: r.name,
		Node: r.origin.Node, Opaque: r.opaque, Placement: r.placed(), Run: r.origin.Run,
		Step: r.origin.Step, Text: r.text, Usage: r.origin.Usage, Workflow: r.origin.Workflow,
	}
	if !r.body.Digest.IsZero() {
		d.Body = &r.body
	}
	return Event{Kind: KindChunk, Schema: Schema, Time: r.origin.Time, Data: canonical.MustMarshal(&d)}.Of(r)
}

// PlacedEvent records where a session was sent.
func PlacedEvent(p Placement) Event {
	return Event{Kind: KindPlaced, Schema: Schema, Data: canonical.MustMarshal(p)}
}

// JoinedEvent records a join.
func JoinedEvent(j Join) Event {
	j.Reason = clean(j.Reason)
	return Event{Kind: KindJoined, Schema: Schema, Data: canonical.MustMarshal(j)}
}

// OpenedEvent records how a session came to be.
func OpenedEvent(o Opening) Event {
	o.Name, o.Run, o.Source, o.Step = clean(o.Name), clean(o.Run), clean(o.Source), clean(o.Step)
	return Event{Kind: KindOpened, Schema: Schema, Data: canonical.MustMarshal(o)}.Of(o)
}

// ClosedEvent records a session's end.
func ClosedEvent(c Closing) Event {
	c.Reason = clean(c.Reason)
	return Event{Kind: KindClosed, Schema: Schema, Data: canonical.MustMarshal(c)}
}

// DecodeOpening, DecodeJoin, DecodeClosing and DecodePlacement
// read the data of their events.
func DecodeOpening(e Event) (o Opening, err error) {
	if made, ok := e.Made().(Opening); ok {
		return made, nil
	}
	err = Decode(e, KindOpened, &o)
	return
}

// DecodeJoin reads a KindJoined event.
func DecodeJoin(e Event) (j Join, err error) { err = Decode(e, KindJoined, &j); return }

// DecodeClosing reads a KindClosed event.
func DecodeClosing(e Event) (c Closing, err error) { err = Decode(e, KindClosed, &c); return }

// DecodePlacement reads a KindPlaced event.
func DecodePlacement(e Event) (p Placement, err error) { err = Decode(e, KindPlaced, &p); return }

// DecodeChunk reads a KindChunk event.
func DecodeChunk(e Event) (Chunk, error) {
	if made, ok := e.Made().(*row); ok && made.origin.Time.Equal(e.Time) && made.ref == (Ref{}) {
		return Chunk{made}, readable(e, KindChunk)
	}
	r, err := decodeRow(e)
	return Chunk{r}, err
}

// decodeRow returns the row of a KindChunk event for the caller to change.
func decodeRow(e Event) (*row, error) {
	if err := readable(e, KindChunk); err != nil {
		return nil, err
	}
	if made, ok := e.Made().(*row); ok {
		r := *made
		r.origin.Time, r.ref = e.Time, Ref{}
		return &r, nil
	}
	var d chunkData
	if err := unmarshalChunk(e.Data, &d); err != nil {
		return nil, fmt.Errorf("session: %s: %w", KindChunk, err)
	}
	r := &row{
		kind: d.Kind, text: d.Text, calls: d.Calls, callID: d.CallID, name: d.Name, failed: d.Failed, images: d.Images, opaque: d.Opaque,
		origin:    origin{d.Agent, d.Workflow, d.Node, d.Run, d.Step, e.Time, d.Usage},
		placement: placed(d.Placement),
	}
	if d.Body != nil {
		r.body = *d.Body
	}
	return r, nil
}

// Decode reads the data of an event of a kind of this package into what into points to,
// which has to be zero. It fails on an event of another kind, and with ErrTooOld on one of a
// later schema.
func Decode(e Event, kind string, into any) error {
	if err := readable(e, kind); err != nil {
		return err
	}
	if err := Unmarshal(e.Data, into); err != nil {
		return fmt.Errorf("session: %s: %w", kind, err)
	}
	return nil
}

func readable(e Event, kind string) error {
	switch {
	case e.Kind != kind:
		return fmt.Errorf("session: event is %s, not %s", e.Kind, kind)
	case e.Schema > Schema || e.Schema < 1:
		return fmt.Errorf("session: %s has schema %d, this release reads up to %d: %w", kind, e.Schema, Schema, ErrTooOld)
	}
	return nil
}

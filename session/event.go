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

// Event is one recorded fact. Kind is namespaced: this package folds "session.*", and
// package run folds "run.*", "step.*" and "writer.*". A fold skips the other
// namespaces. Data is canonical JSON: no white space, keys sorted, no floats, valid
// UTF-8.
type Event struct {
	Kind   string
	Schema int
	// Batch is "run/step" of the step that recorded the event. A batch that is in the
	// log already is not recorded again. It is empty outside of steps.
	Batch string
	Time  time.Time // millisecond precision
	Data  string
	// Blob names the stored Data if Data is too large for a commit. A log that offloads
	// data sets it; readers of such a log get both.
	Blob blob.Ref

	made *made
}

// made is the value from which an event's data were encoded.
type made struct {
	data string // as encoded: data that replace it later take precedence
	what any
}

// Of returns e with the value from which its data were encoded. Readers in this process
// use the value instead of decoding the data. The data must decode to exactly that
// value, and the value must not change after the call. A stored event has none.
func (e Event) Of(what any) Event {
	e.made = &made{e.Data, what}
	return e
}

// Made returns the value from which the data of e were encoded, nil if it is unknown.
func (e Event) Made() any {
	if e.made == nil || e.made.data != e.Data {
		return nil
	}
	return e.made.what
}

// Equal reports whether both events are the same.
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
	KindClosed   = "session.closed"   // of the branch: no event follows it
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

// UnmarshalJSON reads the output of MarshalJSON.
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

// The origins of sessions.
const (
	OpenLeaf     = "leaf"        // a new session
	OpenFork     = "fork"        // a branch of a parent
	OpenImplicit = "implicit"    // a branch, because an older value was extended
	OpenDetach   = "detach"      // a copy of another session that is not its branch
	OpenMerge    = "concatenate" // of two sessions that need not be related
	OpenCompress = "compress"    // a summary that starts over
	OpenImport   = "import"      // from another system's file
	OpenCall     = "call"        // for the work of a tool call of a parent, without the parent's rows
)

// Opening is the first event of a session.
type Opening struct {
	Kind    string `json:"kind"`
	Name    string `json:"name,omitempty"` // of the branch, or of the import
	Parents []Link `json:"parents,omitempty"`
	Run     string `json:"run,omitempty"`
	// Source is the data of an import's file besides its chunks.
	Source string `json:"source,omitempty"`
	Step   string `json:"step,omitempty"`
}

// The outcomes of a branch.
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
	JoinReplace       = "replace"   // the parent replaces all earlier chunks
	JoinSummarise     = "summarise" // refers to the parents; a chunk beside it has the summary
)

// Join adds chunks of other sessions to this one, by reference: of each
// parent the chunks [From, To).
type Join struct {
	Parents   []Part    `json:"parents"`
	Placement Placement `json:"placement,omitzero"` // where the session works after the join; zero keeps its place
	Policy    string    `json:"policy"`
	Reason    string    `json:"reason,omitempty"`
	Usage     Usage     `json:"usage,omitzero"` // consumption of the parents since the ancestor
}

// Closes returns the state in which the join closes its branches: ClosedAdopted or
// ClosedMerged; "" if they stay open.
func (j Join) Closes() string {
	switch j.Policy {
	case JoinAdopt, JoinReplace:
		return ClosedAdopted
	case JoinConcatenate:
		return ""
	}
	return ClosedMerged
}

// Part is the chunks of one parent that a join adds.
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

// calls are tool calls in the form of events: with sorted keys.
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

// ChunkEvent records the addition of a chunk.
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

// PlacedEvent records a session's placement.
func PlacedEvent(p Placement) Event {
	return Event{Kind: KindPlaced, Schema: Schema, Data: canonical.MustMarshal(p)}
}

// JoinedEvent records a join.
func JoinedEvent(j Join) Event {
	j.Reason = clean(j.Reason)
	return Event{Kind: KindJoined, Schema: Schema, Data: canonical.MustMarshal(j)}
}

// OpenedEvent records the origin of a session.
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

// Decode reads the data of an event of this package into the value that into points to,
// which must be zero. It fails on an event of another kind, and with ErrTooOld on an
// event of a later schema.
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

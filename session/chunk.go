package session

import (
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/blob"
)

// Kind is the role of a chunk for the model.
type Kind string

// The kinds of chunks, OpenRath's four.
const (
	System     Kind = "system"
	User       Kind = "user"
	Assistant  Kind = "assistant"
	ToolResult Kind = "tool_result"
)

// ToolCall is a model's request to call a tool. ID is unique within its message. Args
// is the JSON text as the model wrote it, valid or not; the empty string means no
// arguments.
type ToolCall struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Args string `json:"args"`
}

// Placement is the place where a session works: the sandbox backend, the lease's epoch
// and the head of its workspace. The zero Placement means that the session has no place
// yet. While Isolation is "", no sandbox was opened there, and Image, Limits and
// Network are the requested values, with "" for the node's default. After that they are
// the actual values.
type Placement struct {
	Backend   string      `json:"backend,omitempty"`
	Epoch     uint64      `json:"epoch,omitempty"`
	Head      blob.Digest `json:"head,omitzero"`
	Image     string      `json:"image,omitempty"` // as requested; then its digest
	Isolation string      `json:"isolation,omitempty"`
	Limits    string      `json:"limits,omitempty"`  // in the form of sandbox.ParseLimits
	Network   string      `json:"network,omitempty"` // in the form of sandbox.ParseNetwork
	// Services run beside the commands, in the form of sandbox.ParseServices; "" is
	// none.
	Services string `json:"services,omitempty"`
	Spec     string `json:"spec,omitempty"`
}

// clean returns p with its texts cleaned for JSON.
func (p Placement) clean() Placement {
	if p == (Placement{}) {
		return p
	}
	for _, s := range []*string{&p.Backend, &p.Image, &p.Isolation, &p.Limits, &p.Network, &p.Services, &p.Spec} {
		*s = clean(*s)
	}
	return p
}

// Usage is the consumption of model calls. It has no floats, so that it can be summed,
// hashed and compared exactly.
type Usage struct {
	// CacheRead and CacheWrite are the tokens of Input that were read from and written to
	// the provider's cache.
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
	// Calls counts the calls. A wire leaves it 0: the caller counts its calls.
	Calls int64 `json:"calls,omitempty"`
	// Input counts all tokens of the prompts.
	Input int64 `json:"input,omitempty"`
	// MicroUSD is the price in millionths of a US dollar, where it is known.
	MicroUSD int64 `json:"micro_usd,omitempty"`
	// Output counts all generated tokens, including those of the reasoning.
	Output int64 `json:"output,omitempty"`
}

// Add returns the sum of both.
func (u Usage) Add(o Usage) Usage {
	return Usage{
		u.CacheRead + o.CacheRead, u.CacheWrite + o.CacheWrite, u.Calls + o.Calls,
		u.Input + o.Input, u.MicroUSD + o.MicroUSD, u.Output + o.Output,
	}
}

// Sub returns u without o.
func (u Usage) Sub(o Usage) Usage {
	return u.Add(Usage{-o.CacheRead, -o.CacheWrite, -o.Calls, -o.Input, -o.MicroUSD, -o.Output})
}

// Tokens returns input plus output.
func (u Usage) Tokens() int64 { return u.Input + u.Output }

// Origin is the author, time and place of a chunk. A field is empty where it does not
// apply; a chunk that the user typed has no agent.
type Origin struct {
	Agent     string
	Workflow  string
	Node      string
	Run       string
	Step      string
	Time      time.Time // millisecond precision, UTC; set when the chunk is committed
	Placement Placement // where the session worked at that time
	Usage     Usage     // of the model call that made it
}

// Chunk is one row of a session. It is immutable and one pointer wide; the
// zero Chunk is an empty chunk of no kind.
type Chunk struct{ c *row }

type row struct {
	kind   Kind
	text   string
	calls  []ToolCall // of a tool result: the call as the operator approved it, if changed
	callID string
	name   string
	failed bool
	body   blob.Ref
	images []Image
	opaque string
	origin origin
	ref    Ref

	placement *Placement // of the origin; nil if it is zero
}

// origin is an Origin without its placement, which most rows lack.
type origin struct {
	Agent    string
	Workflow string
	Node     string
	Run      string
	Step     string
	Time     time.Time
	Usage    Usage
}

// placed returns the placement of the row's origin.
func (r *row) placed() (p Placement) {
	if r.placement != nil {
		p = *r.placement
	}
	return p
}

func (c Chunk) row() *row {
	if c.c == nil {
		return &row{}
	}
	return c.c
}

func clean(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// UserText returns a chunk of the user's text.
func UserText(text string) Chunk { return Chunk{&row{kind: User, text: clean(text)}} }

// SystemText returns a chunk that instructs the model.
func SystemText(text string) Chunk { return Chunk{&row{kind: System, text: clean(text)}} }

// AssistantText returns a chunk of a model's text, with the tools it called.
func AssistantText(text string, calls ...ToolCall) Chunk {
	own := make([]ToolCall, len(calls))
	for i, call := range calls {
		own[i] = ToolCall{ID: clean(call.ID), Name: clean(call.Name), Args: clean(call.Args)}
	}
	return Chunk{&row{kind: Assistant, text: clean(text), calls: own}}
}

// Result returns the chunk that answers a tool call. body is JSON text;
// failed marks an error body.
func Result(callID, name, body string, failed bool) Chunk {
	return Chunk{&row{kind: ToolResult, callID: clean(callID), name: clean(name), text: clean(body), failed: failed}}
}

// Of returns a copy of c with the given origin.
func (c Chunk) Of(o Origin) Chunk {
	r := *c.row()
	r.origin = origin{
		clean(o.Agent), clean(o.Workflow), clean(o.Node), clean(o.Run), clean(o.Step), time.UnixMilli(o.Time.UnixMilli()).UTC(), o.Usage,
	}
	r.placement = placed(o.Placement.clean())
	return Chunk{&r}
}

// WithBody returns a copy of c whose whole content is kept as a blob; its text is an
// extract of the blob.
func (c Chunk) WithBody(b blob.Ref) Chunk {
	r := *c.row()
	r.body = b
	return Chunk{&r}
}

// WithImages returns a copy of c with images, at most MaxImages of them.
func (c Chunk) WithImages(images ...Image) Chunk {
	r := *c.row()
	r.images = slices.Clone(images[:min(len(images), MaxImages)])
	for i := range r.images {
		r.images[i].Type = clean(r.images[i].Type)
	}
	return Chunk{&r}
}

// WithOpaque returns a copy of c with a provider's own data, such as a reasoning
// signature, which must be sent back verbatim.
func (c Chunk) WithOpaque(s string) Chunk {
	r := *c.row()
	r.opaque = clean(s)
	return Chunk{&r}
}

// WithArgs returns a copy of c, a tool result, with the arguments to which an operator
// changed those of its call.
func (c Chunk) WithArgs(args string) Chunk {
	r := *c.row()
	r.calls = []ToolCall{{ID: r.callID, Name: r.name, Args: clean(args)}}
	return Chunk{&r}
}

// Kind returns the role of the chunk for the model.
func (c Chunk) Kind() Kind { return c.row().kind }

// Text returns the chunk's text; for a tool result it is a JSON text.
func (c Chunk) Text() string { return c.row().text }

// CallID returns the id of the tool call that a tool result answers.
func (c Chunk) CallID() string { return c.row().callID }

// Name returns the name of the tool that made a tool result.
func (c Chunk) Name() string { return c.row().name }

// Args returns the operator's edit of the arguments of the call that a tool result
// answers; "" if the arguments are the model's.
func (c Chunk) Args() string {
	if r := c.row(); r.kind == ToolResult && len(r.calls) > 0 {
		return r.calls[0].Args
	}
	return ""
}

// Failed reports whether a tool result is an error body.
func (c Chunk) Failed() bool { return c.row().failed }

// Body names the whole content if the text is an extract.
func (c Chunk) Body() (blob.Ref, bool) { b := c.row().body; return b, !b.Digest.IsZero() }

// Images returns the images of the chunk. The caller must not change them.
func (c Chunk) Images() []Image { return c.row().images }

// Opaque returns the provider's own data.
func (c Chunk) Opaque() string { return c.row().opaque }

// Origin returns the author, time and place of the chunk.
func (c Chunk) Origin() Origin {
	r := c.row()
	o := &r.origin
	return Origin{o.Agent, o.Workflow, o.Node, o.Run, o.Step, o.Time, r.placed(), o.Usage}
}

// Ref names the session and version in which the chunk was first committed, even if a
// fork or a merge shows it elsewhere. It is zero while the chunk is pending.
func (c Chunk) Ref() Ref { return c.row().ref }

// Calls yields the tool calls of an assistant chunk in their order.
func (c Chunk) Calls() iter.Seq2[int, ToolCall] {
	return func(yield func(int, ToolCall) bool) {
		for i, call := range c.row().calls {
			if c.Kind() == ToolResult || !yield(i, call) {
				return
			}
		}
	}
}

// CallCount returns the number of tool calls of an assistant chunk.
func (c Chunk) CallCount() int {
	if c.Kind() == ToolResult {
		return 0
	}
	return len(c.row().calls)
}

// Equal reports whether both chunks are the same to a model: it ignores their author,
// time and place.
func (c Chunk) Equal(o Chunk) bool {
	a, b := c.row(), o.row()
	if a.kind != b.kind || a.text != b.text || a.callID != b.callID || a.name != b.name ||
		a.failed != b.failed || a.body != b.body || !slices.Equal(a.images, b.images) || a.opaque != b.opaque || len(a.calls) != len(b.calls) {
		return false
	}
	for i := range a.calls {
		if a.calls[i] != b.calls[i] {
			return false
		}
	}
	return true
}

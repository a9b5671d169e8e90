// Package exchange makes one request to the server of a model over HTTP, and gives the
// events of its answer to the decoder of a wire. It implements the common part of the
// wires: limits and keys, silence timeouts, streams of server-sent events as servers
// really write them, whole documents in place of a requested stream, error pages of
// proxies, and the classes of failures. The decoder interprets the events.
//
//	e, err := server.Resolve(ctx, provider)
//	...
//	resp, err := e.Complete(ctx, request, body, decoder)
//
// A request is sent once: the caller of package llm decides about another one.
//
// Files, the lowest first: exchange, finish, fragment, body, opaque, legal, sse, watch, server, azure,
// schema, wait, classes, complaint, failure, transport, complete.
package exchange

import (
	"net/http"
	"time"

	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// The defaults of [llm.ServerOptions].
const (
	DefaultConnect     = 15 * time.Second
	DefaultFirstToken  = 5 * time.Minute
	DefaultSilence     = 2 * time.Minute
	DefaultWhole       = 30 * time.Minute
	DefaultTail        = 2 * time.Second
	DefaultMaxFrame    = 8 << 20
	DefaultMaxResponse = 32 << 20
)

// PathEmbeddings is the path for vectors: their answer is a document, not a stream.
const PathEmbeddings = "/embeddings"

// MaxCalls bounds the tool calls of one answer.
const MaxCalls = 256

// Protocol is the common properties of the servers of a wire.
type Protocol struct {
	// BaseURL is the server of a provider without one, and Root is the path that is
	// appended to a base URL without it.
	BaseURL, Root string
	// EnvKey, EnvBase and EnvModel are the environment variables for the fields that a
	// provider leaves empty.
	EnvKey, EnvBase, EnvModel string
	// Azure is for servers at Azure; the zero value means a protocol without them.
	Azure Azure
	// Sign adds a key and the other headers that each request needs.
	Sign func(h http.Header, key string)
}

// Decoder assembles an answer from its events and passes its pieces on.
type Decoder interface {
	// Add handles an event, which is a JSON object for most decoders, or a whole
	// answer. Its error is an *llm.Error. The decoder must not keep raw after it
	// returns.
	Add(raw []byte) error
	// Done handles the protocol's own end of the answer: [DONE], or the end of a
	// document.
	Done()
	// State returns the progress of the answer.
	State() State
	// Response returns the answer once it is complete. It passes on the text held back
	// so far.
	Response() *llm.Response
}

// State is the progress of an answer.
type State struct {
	Begun bool // a piece of it was seen
	Whole bool // the server proved that the answer is complete
	Text  int  // bytes of its text
	Size  int  // bytes of all parts
	Used  session.Usage
}

// Passed is the part of an answer that a decoder has passed on.
type Passed struct {
	Sink  func(llm.Delta) // may be nil
	Begun bool            // a piece of it was seen
	Size  int             // of all pieces and of the other data that the decoder counts, in bytes
	End
}

// Emit passes a piece on. A finish word before it does not count as the end of the
// answer.
func (p *Passed) Emit(d llm.Delta) {
	p.Begun, p.proven = true, false
	p.Size += len(d.Text) + len(d.Reasoning)
	if d.Call != nil {
		p.Size += len(d.Call.Args)
	}
	if p.Sink != nil {
		p.Sink(d)
	}
}

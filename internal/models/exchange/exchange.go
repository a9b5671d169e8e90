// Package exchange makes one request to the server of a model over HTTP, and gives the
// events of its answer to the decoder of a wire. What the wires have in common is here:
// limits and keys, the watch over silence, streams of server-sent events as servers
// really write them, whole documents where a stream was asked for, pages of proxies,
// and what a failure means. What the events say is the decoder's.
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

// PathEmbeddings is where vectors are asked for: as a document, not as a stream.
const PathEmbeddings = "/embeddings"

// MaxCalls bounds the tool calls of one answer.
const MaxCalls = 256

// Protocol is what the servers of a wire have in common.
type Protocol struct {
	// BaseURL is the server of a provider without one, Root the end that a base URL
	// without it is given.
	BaseURL, Root string
	// EnvKey, EnvBase and EnvModel are the variables of the environment for what a
	// provider leaves out.
	EnvKey, EnvBase, EnvModel string
	// Azure is for servers at Azure; the zero value is of a protocol without.
	Azure Azure
	// Sign puts a key and what else each request needs into its headers.
	Sign func(h http.Header, key string)
}

// Decoder puts an answer together from its events and passes its pieces on.
type Decoder interface {
	// Add takes an event, which is a JSON object for most, or a whole answer. Its error
	// is an *llm.Error. raw is the decoder's until it returns.
	Add(raw []byte) error
	// Done takes the protocol's own end of the answer: [DONE], or that of a document.
	Done()
	// State says how far the answer has come.
	State() State
	// Response returns the answer once it is whole. It passes on what was held back.
	Response() *llm.Response
}

// State is how far an answer has come.
type State struct {
	Begun bool // a piece of it was seen
	Whole bool // the server proved that nothing of it is missing
	Text  int  // bytes of its text
	Size  int  // bytes of all that was seen of it
	Used  session.Usage
}

// Passed is what a decoder has passed on of an answer.
type Passed struct {
	Sink  func(llm.Delta) // may be nil
	Begun bool            // a piece of it was seen
	Size  int             // of all pieces, and what else the decoder counts to them, in bytes
	End
}

// Emit passes a piece on. A finish word before it did not end the answer.
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

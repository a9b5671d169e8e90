package llm

import (
	"net/http"
	"time"
)

// ServerOptions are the settings of a wire that reaches model servers over HTTP, such as
// those of the packages openai and anthropic, which name their environment variables and
// their server. In the zero value nothing is configured but the limits: durations and
// counts of zero take the defaults that package openai names after them.
type ServerOptions struct {
	// Env looks up an environment variable, usually os.Getenv; nil is an
	// empty environment. Values are trimmed, blank is unset.
	Env func(name string) string
	// Key looks up the key that a provider refers to, before Env; "" is that it
	// has none, and an error says why it should have. nil finds none.
	Key func(ref string) (key string, err error)
	// BaseURL is the server of providers that name none; "" is that of the wire's
	// environment variable and then the wire's own.
	BaseURL string
	// DefaultModel is the model of providers that name none; "" is that of the wire's
	// environment variable.
	DefaultModel string

	// FirstToken bounds a call up to the first piece of the answer (or the
	// whole answer, if the server does not stream), Idle the silence between
	// two events after that, Total the whole call. Comments that keep a connection
	// alive count as silence, events such as pings do not.
	FirstToken, Idle, Total time.Duration
	// Tail is how long to wait for what follows the reason of the end, such as the usage.
	Tail time.Duration
	// MaxFrame and MaxResponse bound an event and an answer, in bytes.
	MaxFrame, MaxResponse int

	// Transport makes the connections; nil is one with a pool that fits many
	// parallel calls to few hosts, which honours the proxy variables of the
	// process.
	Transport http.RoundTripper
}

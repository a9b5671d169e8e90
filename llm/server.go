package llm

import (
	"cmp"
	"fmt"
	"net/http"
	"time"
)

// Timeouts bound a model call. 0 is the default.
type Timeouts struct {
	// Connect bounds the way to the server, up to the end of its handshake.
	Connect time.Duration `json:"connect,omitempty"`
	// FirstToken is how long a server may be silent before the first piece of the answer,
	// or before the whole of it if it does not stream; Silence, how long after that. Each
	// byte of an answer ends a silence: a comment, a ping, a piece without text.
	FirstToken time.Duration `json:"first_token,omitempty"`
	Silence    time.Duration `json:"silence,omitempty"`
	// Whole bounds the whole call, whatever comes.
	Whole time.Duration `json:"whole,omitempty"`
}

// The bounds of Timeouts.
const (
	MinTimeout = 10 * time.Millisecond
	MaxTimeout = 24 * time.Hour
	MaxConnect = 5 * time.Minute
)

// Or returns t with the timeouts of o where t has none.
func (t Timeouts) Or(o Timeouts) Timeouts {
	return Timeouts{
		Connect: cmp.Or(t.Connect, o.Connect), FirstToken: cmp.Or(t.FirstToken, o.FirstToken), Silence: cmp.Or(t.Silence, o.Silence), Whole: cmp.Or(t.Whole, o.Whole),
	}
}

// Validate checks the bounds. Its error names the field, and has no code.
func (t Timeouts) Validate() error {
	for _, f := range []struct {
		name    string
		v, most time.Duration
	}{{"connect", t.Connect, MaxConnect}, {"first_token", t.FirstToken, MaxTimeout}, {"silence", t.Silence, MaxTimeout}, {"whole", t.Whole, MaxTimeout}} {
		if f.v != 0 && (f.v < MinTimeout || f.v > f.most) {
			return fmt.Errorf("%s %v: want %v to %v", f.name, f.v, MinTimeout, f.most)
		}
	}
	return nil
}

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

	// Timeouts are those of providers that have none of their own.
	Timeouts Timeouts
	// Tail is how long to wait for what follows the reason of the end, such as the usage.
	Tail time.Duration
	// MaxFrame and MaxResponse bound an event and an answer, in bytes.
	MaxFrame, MaxResponse int

	// Transport makes the connections; nil is one with a pool that fits many
	// parallel calls to few hosts, which honours the proxy variables of the
	// process.
	Transport http.RoundTripper
}

package llm

import (
	"cmp"
	"fmt"
	"net/http"
	"time"
)

// Timeouts bound a model call. 0 is the default.
type Timeouts struct {
	// Connect bounds the connection to the server, up to the end of its handshake.
	Connect time.Duration `json:"connect,omitempty"`
	// FirstToken bounds the server's silence before the first piece of the answer, or
	// before the whole answer if it does not stream. Silence bounds it after that. Each
	// byte of an answer ends a silence: a comment, a ping, a piece without text.
	FirstToken time.Duration `json:"first_token,omitempty"`
	Silence    time.Duration `json:"silence,omitempty"`
	// Whole bounds the whole call.
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

// ServerOptions are the settings of a wire that reaches model servers over HTTP, such
// as those of the packages openai and anthropic. The wires name their environment
// variables and their server. The zero value has only limits: durations and counts of
// zero take the defaults of package openai.
type ServerOptions struct {
	// Env looks up an environment variable, usually os.Getenv; nil is an
	// empty environment. Values are trimmed, blank is unset.
	Env func(name string) string
	// Key looks up the key that a provider refers to, before Env. It returns "" for an
	// unknown reference, and an error if the reference should have a key. If Key is
	// nil, only Env is used.
	Key func(ref string) (key string, err error)
	// BaseURL is the server of providers without one; "" means that of the wire's
	// environment variable and then the wire's own.
	BaseURL string
	// DefaultModel is the model of providers without one; "" means that of the wire's
	// environment variable.
	DefaultModel string

	// Timeouts are the timeouts of providers without their own.
	Timeouts Timeouts
	// Tail is how long to wait for data after the finish reason, such as the usage.
	Tail time.Duration
	// MaxFrame and MaxResponse bound an event and an answer, in bytes.
	MaxFrame, MaxResponse int

	// Transport makes the connections; nil is a transport with a pool for many parallel
	// calls to few hosts, which honours the proxy variables of the process.
	Transport http.RoundTripper
}

// Package anthropic completes requests at servers that speak Anthropic's Messages
// protocol.
//
//	models := anthropic.New(&anthropic.Options{Env: os.Getenv})
//	client, err := models.Client(ctx, llm.Provider{Model: "claude-sonnet-4-5"})
//
// A completion counts only if the server gave a stop reason. Blocks of thinking go back
// to the server that wrote them byte for byte, signatures and hidden ones too, and where
// they stood: [llm.Response.Opaque] has them. Breakpoints of the prompt cache stand at
// the end of the tools, of the instructions, of the newest message and of the newest one
// of the request before.
//
// The instructions are the system messages that a transcript begins with. Later ones,
// which the protocol does not have, are said by the user where they stand. A seed and
// the penalties of a provider are not sent: the protocol has none.
//
// Files, the lowest first: anthropic, request, messages, answer, blocks, client.
package anthropic

import (
	"net/http"
	"time"

	"github.com/rathcluster/rath/internal/exchange"
	"github.com/rathcluster/rath/llm"
)

const (
	// DefaultBaseURL is the server of a provider without a BaseURL. A base URL may
	// leave out the /v1.
	DefaultBaseURL = "https://api.anthropic.com/v1"
	// DefaultMaxTokens is the limit of an answer where a provider sets none: the
	// protocol wants one.
	DefaultMaxTokens = 8192
	// Version is that of the protocol, which each request names.
	Version = "2023-06-01"
)

// The environment variables that are looked up through [Options.Env].
const (
	EnvKey   = "ANTHROPIC_API_KEY"
	EnvBase  = "ANTHROPIC_BASE_URL"
	EnvModel = "ANTHROPIC_MODEL"
)

// Options are the settings of [New]. In the zero value nothing is configured but the
// limits, which are those of package openai.
type Options struct {
	// Env looks up an environment variable, usually os.Getenv; nil is an empty
	// environment. Values are trimmed, blank is unset.
	Env func(name string) string
	// Key looks up the key that a provider refers to, before Env; "" is that it has
	// none, and an error says why it should have. nil finds none.
	Key func(ref string) (key string, err error)
	// BaseURL is the server of providers that name none; "" is ANTHROPIC_BASE_URL and
	// then DefaultBaseURL.
	BaseURL string
	// DefaultModel is the model of providers that name none; "" is ANTHROPIC_MODEL.
	DefaultModel string
	// FirstToken bounds a call up to the first piece of the answer, Idle the silence
	// between two events after that, pings among them, Total the whole call.
	FirstToken, Idle, Total time.Duration
	// Tail is how long to wait for what follows the stop reason.
	Tail time.Duration
	// MaxFrame and MaxResponse bound an event and an answer, in bytes.
	MaxFrame, MaxResponse int
	// Transport makes the connections; nil is one with a pool that fits many parallel
	// calls to few hosts, which honours the proxy variables of the process.
	Transport http.RoundTripper
}

// models is safe for concurrent use.
type models struct{ server *exchange.Server }

// New resolves providers to clients; nil options are the zero value. The key is the
// provider's KeyRef, looked up by Options.Key and then Options.Env; without a KeyRef it is
// ANTHROPIC_API_KEY, but only for the servers that the configuration names and for
// DefaultBaseURL.
func New(o *Options) llm.Models {
	if o == nil {
		o = &Options{}
	}
	return &models{exchange.NewServer(exchange.Options(*o), exchange.Protocol{
		BaseURL: DefaultBaseURL, Root: "/v1", EnvKey: EnvKey, EnvBase: EnvBase, EnvModel: EnvModel,
		Sign: func(h http.Header, key string) {
			h.Set("Anthropic-Version", Version)
			if key != "" {
				h.Set("X-Api-Key", key)
			}
		},
	})}
}

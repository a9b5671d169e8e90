// Package openai completes requests at servers that speak the OpenAI chat
// completions protocol: OpenAI itself, and the many local and hosted servers
// that imitate it more or less. A provider of [KindResponses] is asked by OpenAI's
// newer protocol, in which a reasoning model gets its thoughts back.
//
//	models := openai.New(&openai.Options{Env: os.Getenv})
//	client, err := models.Client(ctx, llm.Provider{Model: "gpt-5.5"})
//
// Requests are made of the types of the go-openai module; what servers really
// send is read here, because a transcript that others build
// on must not contain half an answer. A completion counts only if the server
// gave a finish reason. Streams that stall, break, turn into web pages, hide
// errors or stop politely in the middle become errors of package llm, and so
// do whole answers that are not what the protocol says. Small deviations (a
// missing index, arguments that are objects, characters split between two
// chunks, a missing [DONE]) are understood.
//
// Keys are looked up by name when a client is made and appear nowhere else:
// not in provider data, not in errors. The package does not run tools, check
// their arguments, or send a request again: its caller does.
package openai

import (
	"context"
	"net/http"
	"time"

	"github.com/rathcluster/rath/internal/exchange"
	"github.com/rathcluster/rath/llm"
)

// The defaults of [Options].
const (
	// DefaultBaseURL is the server of a provider without a BaseURL.
	DefaultBaseURL = "https://api.openai.com/v1"
	// DefaultFirstToken is generous because models that reason in silence
	// are slow to begin.
	DefaultFirstToken = exchange.DefaultFirstToken
	// DefaultIdle is how long a stream may be silent once it has begun.
	DefaultIdle = exchange.DefaultIdle
	// DefaultTotal bounds a call.
	DefaultTotal = exchange.DefaultTotal
	// DefaultTail is how long a stream may stay open after its finish reason.
	DefaultTail = exchange.DefaultTail
	// DefaultMaxFrame bounds one event of a stream in bytes.
	DefaultMaxFrame = exchange.DefaultMaxFrame
	// DefaultMaxResponse bounds a whole answer in bytes.
	DefaultMaxResponse = exchange.DefaultMaxResponse
	// MaxCalls bounds the tool calls of one answer.
	MaxCalls = exchange.MaxCalls
)

// The environment variables that are looked up through [Options.Env].
const (
	EnvKey   = "OPENAI_API_KEY"
	EnvBase  = "OPENAI_BASE_URL"
	EnvModel = "OPENAI_DEFAULT_MODEL"
	// A resource at Azure, where OPENAI_BASE_URL names no server: its key goes to it and
	// to servers at Azure that the configuration names. With a version the paths name
	// the deployment, which is the model; without one it is the API that needs none.
	EnvAzureEndpoint = "AZURE_OPENAI_ENDPOINT"
	EnvAzureKey      = "AZURE_OPENAI_API_KEY"
	EnvAzureVersion  = "AZURE_OPENAI_API_VERSION"
)

// Options are the settings of [New]. In the zero value nothing is
// configured but the limits. Durations and counts of zero take the default
// named after them.
type Options struct {
	// Env looks up an environment variable, usually os.Getenv; nil is an
	// empty environment. Values are trimmed, blank is unset.
	Env func(name string) string
	// Key looks up the key that a provider refers to, before Env; "" is that it
	// has none, and an error says why it should have. nil finds none.
	Key func(ref string) (key string, err error)
	// BaseURL is the server of providers that name none; "" is OPENAI_BASE_URL
	// and then DefaultBaseURL.
	BaseURL string
	// DefaultModel is the model of providers that name none; "" is
	// OPENAI_DEFAULT_MODEL.
	DefaultModel string

	// FirstToken bounds a call up to the first piece of the answer (or the
	// whole answer, if the server does not stream), Idle the silence between
	// two events after that, Total the whole call. Comments that keep a
	// connection alive count as silence.
	FirstToken, Idle, Total time.Duration
	// Tail is how long to wait for the usage after the finish reason.
	Tail time.Duration
	// MaxFrame and MaxResponse bound what is read, in bytes.
	MaxFrame, MaxResponse int

	// Transport makes the connections; nil is one with a pool that fits many
	// parallel calls to few hosts, which honours the proxy variables of the
	// process.
	Transport http.RoundTripper
}

// models is safe for concurrent use.
type models struct{ server *exchange.Server }

// New resolves providers to clients of OpenAI-compatible servers; nil options
// are the zero value. With llm.EmbedderOf they make vectors as well.
//
// The key is the provider's KeyRef, looked up by Options.Key and then
// Options.Env; without a KeyRef it is OPENAI_API_KEY, but only for the servers
// that the configuration names and for DefaultBaseURL: data that came with a
// workflow does not get to send the process's own key elsewhere. Servers
// other than DefaultBaseURL may do without a key.
//
// If no model is named anywhere the error lists what the server offers.
func New(o *Options) llm.Models {
	if o == nil {
		o = &Options{}
	}
	return &models{exchange.NewServer(exchange.Options(*o), exchange.Protocol{
		BaseURL: DefaultBaseURL, EnvKey: EnvKey, EnvBase: EnvBase, EnvModel: EnvModel,
		Azure: exchange.Azure{Endpoint: EnvAzureEndpoint, Keys: []string{EnvAzureKey, "AZURE_API_KEY"}, Version: EnvAzureVersion},
		Sign: func(h http.Header, key string) {
			if key != "" {
				h.Set("Authorization", "Bearer "+key)
			}
		},
	})}
}

// Client implements llm.Models, as New says.
func (m *models) Client(ctx context.Context, p llm.Provider) (llm.Client, error) {
	e, err := m.server.Resolve(ctx, p)
	if err != nil {
		return nil, err
	}
	return &client{e, p.Kind == KindResponses}, nil
}

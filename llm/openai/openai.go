// Package openai completes requests at servers that speak the OpenAI chat completions
// protocol: OpenAI itself, and the many local and hosted servers that imitate it more
// or less. A provider of [KindResponses] uses OpenAI's newer protocol, in which a
// reasoning model gets its thoughts back.
//
//	models := openai.New(&llm.ServerOptions{Env: os.Getenv})
//	client, err := models.Client(ctx, llm.Provider{Model: "gpt-5.5"})
//
// Requests use the types of the go-openai module. This package decodes the servers'
// answers itself, because a transcript must not contain half an answer. A completion
// counts only if the server gave a finish reason. Streams that stall, break, turn into
// web pages, hide errors or stop politely in the middle become errors of package llm,
// and so do complete answers that violate the protocol. Small deviations (a missing
// index, arguments that are objects, characters split between two chunks, a missing
// [DONE]) are accepted.
//
// Keys are looked up by name when a client is made and appear nowhere else:
// not in provider data, not in errors. The package does not run tools, check
// their arguments, or send a request again: its caller does.
package openai

import (
	"context"
	"net/http"

	"github.com/rathcluster/rath/internal/models/exchange"
	"github.com/rathcluster/rath/llm"
)

// The defaults of [llm.ServerOptions].
const (
	// DefaultBaseURL is the server of a provider without a BaseURL.
	DefaultBaseURL = "https://api.openai.com/v1"
	// DefaultConnect bounds the connection to a server.
	DefaultConnect = exchange.DefaultConnect
	// DefaultFirstToken is generous because models that reason in silence are slow to
	// start.
	DefaultFirstToken = exchange.DefaultFirstToken
	// DefaultSilence is how long a stream may be silent after its start.
	DefaultSilence = exchange.DefaultSilence
	// DefaultWhole bounds a call.
	DefaultWhole = exchange.DefaultWhole
	// DefaultTail is how long a stream may stay open after its finish reason.
	DefaultTail = exchange.DefaultTail
	// DefaultMaxFrame bounds one event of a stream in bytes.
	DefaultMaxFrame = exchange.DefaultMaxFrame
	// DefaultMaxResponse bounds a whole answer in bytes.
	DefaultMaxResponse = exchange.DefaultMaxResponse
	// MaxCalls bounds the tool calls of one answer.
	MaxCalls = exchange.MaxCalls
)

// The environment variables that are looked up through [llm.ServerOptions.Env].
const (
	EnvKey   = "OPENAI_API_KEY"
	EnvBase  = "OPENAI_BASE_URL"
	EnvModel = "OPENAI_DEFAULT_MODEL"
	// A resource at Azure, for use when OPENAI_BASE_URL names no server. Its key is
	// sent to it and to servers at Azure that the configuration names. With a version
	// the paths name the deployment, which is the model; without one the newer API is
	// used.
	EnvAzureEndpoint = "AZURE_OPENAI_ENDPOINT"
	EnvAzureKey      = "AZURE_OPENAI_API_KEY"
	EnvAzureVersion  = "AZURE_OPENAI_API_VERSION"
)

// models is safe for concurrent use.
type models struct{ server *exchange.Server }

// New resolves providers to clients of OpenAI-compatible servers; nil options
// are the zero value. With llm.EmbedderOf they make vectors as well. Without a
// BaseURL the server is that of OPENAI_BASE_URL and then DefaultBaseURL, and without a
// DefaultModel the model is that of OPENAI_DEFAULT_MODEL.
//
// The key is the provider's KeyRef, looked up by Key of the options and then their Env;
// without a KeyRef it is OPENAI_API_KEY, but only for the servers that the
// configuration names and for DefaultBaseURL: data of a workflow cannot send the
// process's own key elsewhere. Only DefaultBaseURL requires a key.
//
// If no model is configured, the error lists the server's models.
func New(o *llm.ServerOptions) llm.Models {
	if o == nil {
		o = &llm.ServerOptions{}
	}
	return &models{exchange.NewServer(*o, exchange.Protocol{
		BaseURL: DefaultBaseURL, EnvKey: EnvKey, EnvBase: EnvBase, EnvModel: EnvModel,
		Azure: exchange.Azure{Endpoint: EnvAzureEndpoint, Keys: []string{EnvAzureKey, "AZURE_API_KEY"}, Version: EnvAzureVersion},
		Sign: func(h http.Header, key string) {
			if key != "" {
				h.Set("Authorization", "Bearer "+key)
			}
		},
	})}
}

// Client implements llm.Models; see New.
func (m *models) Client(ctx context.Context, p llm.Provider) (llm.Client, error) {
	e, err := m.server.Resolve(ctx, p)
	if err != nil {
		return nil, err
	}
	return &client{e, p.Kind == KindResponses}, nil
}

// Package anthropic completes requests at servers that speak Anthropic's Messages
// protocol.
//
//	models := anthropic.New(&llm.ServerOptions{Env: os.Getenv})
//	client, err := models.Client(ctx, llm.Provider{Model: "claude-sonnet-4-5"})
//
// A completion counts only if the server gave a stop reason. Blocks of thinking are
// sent back, byte for byte and at their places, to the model, server and key that wrote
// them, including signatures and hidden blocks: [llm.Response.Opaque] has them.
// Thinking is requested where the server accepts it: not beside a required tool, and,
// with a budget, not within a loop of tools that another model took over. Breakpoints
// of the prompt cache are at the end of the tools, of the instructions, of the newest
// message and of the newest one of the previous request.
//
// The instructions are the system messages at the start of a transcript. Later ones,
// which the protocol lacks, are sent as messages of the user at their places. A seed
// and the penalties of a provider are not sent: the protocol has none.
//
// Files, the lowest first: anthropic, thinking, request, messages, answer, blocks, client.
package anthropic

import (
	"net/http"

	"github.com/rathcluster/rath/internal/models/exchange"
	"github.com/rathcluster/rath/llm"
)

const (
	// DefaultBaseURL is the server of a provider without a BaseURL. A base URL may
	// leave out the /v1.
	DefaultBaseURL = "https://api.anthropic.com/v1"
	// DefaultMaxTokens is the limit of an answer if a provider sets none: the protocol
	// requires one.
	DefaultMaxTokens = 8192
	// Version is the protocol's version, which each request names.
	Version = "2023-06-01"
)

// The environment variables, which are looked up through [llm.ServerOptions.Env].
const (
	EnvKey   = "ANTHROPIC_API_KEY"
	EnvBase  = "ANTHROPIC_BASE_URL"
	EnvModel = "ANTHROPIC_MODEL"
)

// models is safe for concurrent use.
type models struct{ server *exchange.Server }

// New resolves providers to clients; nil options are the zero value. Without a BaseURL the
// server is that of ANTHROPIC_BASE_URL and then DefaultBaseURL, and without a DefaultModel
// the model is that of ANTHROPIC_MODEL. The key is the provider's KeyRef, looked up by Key of
// the options and then their Env; without a KeyRef it is ANTHROPIC_API_KEY, but only for the
// servers that the configuration names and for DefaultBaseURL.
func New(o *llm.ServerOptions) llm.Models {
	if o == nil {
		o = &llm.ServerOptions{}
	}
	return &models{exchange.NewServer(*o, exchange.Protocol{
		BaseURL: DefaultBaseURL, Root: "/v1", EnvKey: EnvKey, EnvBase: EnvBase, EnvModel: EnvModel,
		Sign: func(h http.Header, key string) {
			h.Set("Anthropic-Version", Version)
			if key != "" {
				h.Set("X-Api-Key", key)
			}
		},
	})}
}

package models

import (
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/anthropic"
	"github.com/rathcluster/rath/llm/openai"
)

// The kinds of models: the protocols that their servers speak.
const (
	KindOpenAI    = "openai"
	KindResponses = openai.KindResponses
	KindAnthropic = "anthropic"
)

var kinds = []string{KindOpenAI, KindResponses, KindAnthropic}

// Clients returns the clients of each kind, with the keys of l and of the environment.
// model is OpenAI's default model, "" for that of the environment.
func (l *List) Clients(env func(string) string, model string) map[string]llm.Models {
	key := func(ref string) (string, error) { return l.Key(env, ref) }
	chat := openai.New(&llm.ServerOptions{Env: env, DefaultModel: model, Key: key})
	return map[string]llm.Models{
		KindOpenAI: chat, KindResponses: chat,
		KindAnthropic: anthropic.New(&llm.ServerOptions{Env: env, Key: key}),
	}
}

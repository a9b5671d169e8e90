package node

import (
	"strings"

	"github.com/rathcluster/rath/internal/demo"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/openai"
	"github.com/rathcluster/rath/llm/scripted"
)

// KindOpenAI is the provider kind of the OpenAI protocol.
const KindOpenAI = "openai"

// DefaultModels returns the models of a node without settings of its own: the
// OpenAI protocol when the environment names a key or a server, else the model
// that repeats what the user said; and the script of the demo. env looks up an
// environment variable; model is the default model, "" for the environment's.
func DefaultModels(env func(string) string, model string) (llm.Models, error) {
	echo, err := scripted.New(nil, nil)
	if err != nil {
		return nil, err
	}
	shown, err := demo.Model(1)
	if err != nil {
		return nil, err
	}
	real := openai.New(&openai.Options{Env: env, DefaultModel: model})
	kinds := map[string]llm.Models{KindOpenAI: real, "echo": echo, demo.Kind: shown, "": echo}
	if strings.TrimSpace(env(openai.EnvKey)) != "" || strings.TrimSpace(env(openai.EnvBase)) != "" || model != "" {
		kinds[""] = real
	}
	return llm.ByKind(kinds), nil
}

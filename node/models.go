package node

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/rathcluster/rath/internal/models"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/internal/workflows/demo"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/openai"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/messages"
)

// The provider kinds of protocols: OpenAI's chat completions and responses, and
// Anthropic's messages.
const (
	KindOpenAI    = models.KindOpenAI
	KindResponses = models.KindResponses
	KindAnthropic = models.KindAnthropic
)

// EchoModel is the name of the model that repeats the user's message. It is for trials
// without a key, and answers only where it is named.
const EchoModel = "echo"

// DefaultModels returns the models of a node without settings of its own: the OpenAI
// protocol, and other protocols for models that name their kind, with the key or the
// server of the environment; the EchoModel; and the script of the demo. env looks up an
// environment variable; model is the default model, "" for the environment's. Without a
// key, a server and a name every call fails with llm.CodeNoKey.
func DefaultModels(env func(string) string, model string) (llm.Models, error) {
	return modelsOf(env, model, nil)
}

// modelsOf returns the DefaultModels with the keys of a list.
func modelsOf(env func(string) string, model string, list *models.List) (llm.Models, error) {
	echo, err := scripted.New(nil, nil)
	if err != nil {
		return nil, err
	}
	shown, err := demo.Model(1)
	if err != nil {
		return nil, err
	}
	kinds := list.Clients(env, model)
	kinds[EchoModel], kinds[demo.Kind] = echo, shown
	kinds[""] = unnamedKind{real: kinds[KindOpenAI], echo: echo, model: cmp.Or(model, strings.TrimSpace(env(openai.EnvModel)))}
	return llm.ByKind(kinds), nil
}

// maxReason bounds the reason why a model cannot be asked, in bytes.
const maxReason = 300

// defaultModel returns the name of the default model, and the reason if it cannot be
// asked. It sends no request.
func defaultModel(ctx context.Context, o *Options) (name, reason string) {
	name = cmp.Or(o.Models.Default, strings.TrimSpace(o.Env(openai.EnvModel)))
	if _, err := o.Models.Source.Client(ctx, llm.Provider{Model: o.Models.Default}); err != nil {
		reason = term.Line(messages.Text(err), maxReason)
	}
	return name, reason
}

// Embedder is for llm.EmbedderOf.
func (u unnamedKind) Embedder(ctx context.Context, p llm.Provider) (llm.Embedder, error) {
	if cmp.Or(p.Model, u.model) == EchoModel && p.BaseURL == "" {
		return llm.EmbedderOf(ctx, u.echo, p)
	}
	return llm.EmbedderOf(ctx, u.real, p)
}

// unnamedKind serves the tasks that name a model and no kind of provider.
type unnamedKind struct {
	real, echo llm.Models
	model      string // the default
}

func (u unnamedKind) Client(ctx context.Context, p llm.Provider) (llm.Client, error) {
	if cmp.Or(p.Model, u.model) == EchoModel && p.BaseURL == "" { // a server may have a model of that name
		return u.echo.Client(ctx, p)
	}
	c, err := u.real.Client(ctx, p)
	if e, ok := errors.AsType[*llm.Error](err); ok && e.Code == llm.CodeNoKey && p.KeyRef == "" {
		with := *e
		with.Message += "; or try without one: the model " + EchoModel + " repeats its input (--model " + EchoModel + ")"
		return nil, &with
	}
	return c, err
}

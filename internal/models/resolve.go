package models

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/models/listfile"
	"github.com/rathcluster/rath/llm"
)

// Chain returns the models of a name: the model itself and its fallbacks. The list is
// exhaustive: an unknown name is an error. Clients read the error, so it has no folder
// and no remedy that requires an operator.
func (l *List) Chain(name string) ([]*Model, error) {
	if name == "" {
		name = l.Default
	}
	if name == "" {
		return nil, &llm.Error{Code: llm.CodeNoModel, Message: fmt.Sprintf("no model is named, and the list of models %s has no default; name one of %s", filepath.Base(l.File), strings.Join(l.names(), ", "))}
	}
	first := l.Lookup(name)
	if first == nil {
		return nil, &llm.Error{Code: llm.CodeModelNotFound, Message: fmt.Sprintf("there is no model %q in the list of models %s; name one of %s", llm.Clip(name, 80), filepath.Base(l.File), strings.Join(l.names(), ", "))}
	}
	chain := []*Model{first}
	for _, fallback := range first.Fallbacks {
		chain = append(chain, l.Lookup(fallback))
	}
	return chain, nil
}

// Provider returns the provider for the model's client: the settings of p with the
// server, the key and the model of m.
func (m *Model) Provider(p llm.Provider) llm.Provider {
	p.Kind, p.BaseURL, p.KeyRef, p.Model = m.Kind, m.URL, m.Key, m.ID
	if p.MaxTokens == 0 || m.Output > 0 && int64(p.MaxTokens) > m.Output {
		p.MaxTokens = int(m.Output)
	}
	if slices.Contains(m.Can, CanDeveloper) {
		p.SystemRole = "developer"
	}
	p.SchemaOmit, p.Failures = m.SchemaOmit, m.Failures
	if m.Timeouts != (llm.Timeouts{}) {
		p.Timeouts = m.Timeouts.Or(p.Timeouts)
	}
	if m.Dimensions > 0 {
		p.Extra = fmt.Appendf(nil, `{"dimensions":%d}`, m.Dimensions)
	}
	return m.Thinking.ask(m.Kind, p)
}

// Key returns the key for a reference of the list. It looks up no other references, so
// that no data of a workflow can read a file of this machine.
func (l *List) Key(env func(string) string, ref string) (string, error) {
	if l == nil || !slices.ContainsFunc(l.models, func(m *Model) bool { return m.Key == ref }) {
		return "", nil
	}
	return listfile.Secret(env, l.File, ref, "key")
}

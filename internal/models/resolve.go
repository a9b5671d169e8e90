package models

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/listfile"
	"github.com/rathcluster/rath/llm"
)

// Chain returns the models that a name stands for: itself and those that take its
// place. The list decides alone: a name that it does not have is an error.
func (l *List) Chain(name string) ([]*Model, error) {
	if name == "" {
		name = l.Default
	}
	if name == "" {
		return nil, &llm.Error{Code: llm.CodeNoModel, Message: fmt.Sprintf("no model is named, and %s has no default; name one of %s", l.File, strings.Join(l.names(), ", "))}
	}
	first := l.Lookup(name)
	if first == nil {
		return nil, &llm.Error{Code: llm.CodeModelNotFound, Message: fmt.Sprintf("there is no model %q in %s; name one of %s, or add it", llm.Clip(name, 80), l.File, strings.Join(l.names(), ", "))}
	}
	chain := []*Model{first}
	for _, fallback := range first.Fallbacks {
		chain = append(chain, l.Lookup(fallback))
	}
	return chain, nil
}

// Provider returns what the model's client is made from: the settings of p with the
// server, the key and the model of m.
func (m *Model) Provider(p llm.Provider) llm.Provider {
	p.Kind, p.BaseURL, p.KeyRef, p.Model = m.Kind, m.URL, m.Key, m.ID
	if p.MaxTokens == 0 || m.Output > 0 && int64(p.MaxTokens) > m.Output {
		p.MaxTokens = int(m.Output)
	}
	if slices.Contains(m.Can, CanDeveloper) {
		p.SystemRole = "developer"
	}
	return p
}

// Key returns the key that a reference of the list stands for. Other references are not
// looked up, so that no data of a workflow reads a file of this machine.
func (l *List) Key(env func(string) string, ref string) (string, error) {
	if l == nil || !slices.ContainsFunc(l.models, func(m *Model) bool { return m.Key == ref }) {
		return "", nil
	}
	return listfile.Secret(env, l.File, ref, "key")
}

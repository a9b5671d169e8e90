package models

import (
	"fmt"
	"slices"

	"github.com/rathcluster/rath/llm"
)

// Model is an entry of a list.
type Model struct {
	Name string
	Line int // in the file
	// Kind is the protocol, one of the constants. URL is the root of the server's API,
	// "" for the one from the environment.
	Kind, URL string
	// URLs are the servers of a pool, whose first is URL; nil for a single server.
	URLs []string
	// Key is the place of the key: "env:NAME" or "file:PATH", "" for none.
	Key string
	ID  string // of the model, for its server
	// Context is the maximum number of tokens of a request and its answer, and Output
	// that of an answer; 0 if it is not stated.
	Context, Output int64
	// Can are the model's abilities: tools, images, and developer, which means that
	// instructions have that role; or embeddings alone.
	Can []string
	// SchemaOmit are the keywords of JSON Schema that its server rejects.
	SchemaOmit []string
	// Failures are its server's own signs of classes of failures, and Timeouts the
	// bounds of its calls.
	Failures []llm.FailureRule
	Timeouts llm.Timeouts
	// Thinking is the way to request thoughts; nil requests none.
	Thinking *Thinking
	// Dimensions is the requested number of each vector; 0 is the model's own number.
	Dimensions int
	// Cost is the way in which its calls are paid: Priced, Stated, Free, or "" if the
	// list has none.
	Cost   string
	Prices *Prices
	Public bool // the prices are from the public table
	// Fallbacks are the names of the models that replace it, in their order.
	Fallbacks []string
	// Retries are the retries of its calls.
	Retries Retries
	// Limit is the limit for all nodes together.
	Limit Limit
	ref   string // to its key, verbatim

	fallbacksLine int
}

// Vectors names the vector space of the model. Vectors of different names here, of
// different ids at the server or of different dimensions cannot be compared.
func (m *Model) Vectors() string {
	if m.Dimensions > 0 {
		return fmt.Sprintf("%s %s %d", m.Name, m.ID, m.Dimensions)
	}
	return m.Name + " " + m.ID
}

// Replicas returns the model at each of its servers.
func (m *Model) Replicas() []*Model {
	if len(m.URLs) == 0 {
		return []*Model{m}
	}
	all := make([]*Model, len(m.URLs))
	for i, url := range m.URLs {
		one := *m
		one.URL, one.URLs = url, nil
		all[i] = &one
	}
	return all
}

// Limit is the maximum number of requests and tokens per minute, and of concurrent
// calls of a tenant; 0 is unlimited.
type Limit struct{ Requests, Tokens, Concurrency int64 }

// KeyLimit is a limit of a key, for all models that use it.
type KeyLimit struct {
	Key string // verbatim, so that it is the same at nodes with other paths
	Limit
}

// The abilities of a model.
const (
	CanTools     = "tools"
	CanImages    = "images"
	CanDeveloper = "developer"
	// CanEmbed makes vectors of texts; such a model answers no requests.
	CanEmbed = "embeddings"
)

var abilities = []string{CanTools, CanImages, CanDeveloper, CanEmbed}

// Embeds reports whether the model only makes vectors of texts.
func (m *Model) Embeds() bool { return slices.Contains(m.Can, CanEmbed) }

// List are the models of a node. A nil List has none.
type List struct {
	File    string
	Default string // the default name
	Memory  string // the name of the model that makes the vectors of notes; "" is none
	models  []*Model
	keys    []KeyLimit

	defaultLine, memoryLine int
}

// KeyLimit returns the limit of a model's key, if it has one.
func (l *List) KeyLimit(m *Model) (limit KeyLimit, ok bool) {
	i := slices.IndexFunc(l.keys, func(k KeyLimit) bool { return k.Key == m.ref })
	if i < 0 {
		return KeyLimit{}, false
	}
	return l.keys[i], true
}

// Lookup returns the model of a name; nil is none.
func (l *List) Lookup(name string) *Model {
	if l == nil {
		return nil
	}
	if i := slices.IndexFunc(l.models, func(m *Model) bool { return m.Name == name }); i >= 0 {
		return l.models[i]
	}
	return nil
}

// All returns the models in the order of the file.
func (l *List) All() []*Model {
	if l == nil {
		return nil
	}
	return slices.Clone(l.models)
}

// names are the names of the list's models.
func (l *List) names() []string {
	all := make([]string, len(l.models))
	for i, m := range l.models {
		all[i] = m.Name
	}
	return all
}

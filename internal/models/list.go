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
	// Kind is the protocol, one of the constants; URL the root of the server's API, "" for that of
	// the environment.
	Kind, URL string
	// URLs are the servers of a pool, whose first is URL; nil of one server.
	URLs []string
	// Key says where the key is: "env:NAME" or "file:PATH", "" for none.
	Key string
	ID  string // of the model, for its server
	// Context is how many tokens a request and its answer may have, 0 if that is not
	// said, and Output how many an answer.
	Context, Output int64
	// Can are what the model is able to do: tools, images, developer, which is that
	// instructions come as that role; or embeddings alone.
	Can []string
	// SchemaOmit are the keywords of JSON Schema that its server refuses.
	SchemaOmit []string
	// Failures are signs of classes of failures that its server has of its own, and
	// Timeouts how long its calls may take.
	Failures []llm.FailureRule
	Timeouts llm.Timeouts
	// Thinking is how it is asked for thoughts; nil does not ask.
	Thinking *Thinking
	// Dimensions are asked for of each vector; 0 is the model's own number.
	Dimensions int
	// Cost is how its calls are paid: Priced, Stated, Free, "" if the list does not say.
	Cost   string
	Prices *Prices
	Public bool // the prices are those of the public table
	// Fallbacks are the names of the models that take its place, in their order.
	Fallbacks []string
	// Retries are those of its calls.
	Retries Retries
	// Limit is what all nodes together may ask of it.
	Limit Limit
	ref   string // to its key, as it is written

	fallbacksLine int
}

// Vectors names the vectors that the model makes: two that differ in their name here, in the
// id at the server or in the dimensions do not compare.
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

// Limit is how many requests and tokens may be asked for in a minute, and how many calls a
// tenant may have under way at one time; 0 is any number.
type Limit struct{ Requests, Tokens, Concurrency int64 }

// KeyLimit is a limit of a key, for all models that use it.
type KeyLimit struct {
	Key string // as it is written, so that it is the same at nodes with files elsewhere
	Limit
}

// What a model may be able to do.
const (
	CanTools     = "tools"
	CanImages    = "images"
	CanDeveloper = "developer"
	// CanEmbed makes vectors of texts, and answers nothing.
	CanEmbed = "embeddings"
)

var abilities = []string{CanTools, CanImages, CanDeveloper, CanEmbed}

// Embeds reports whether the model makes vectors of texts, and answers nothing.
func (m *Model) Embeds() bool { return slices.Contains(m.Can, CanEmbed) }

// List are the models of a node. A nil List has none.
type List struct {
	File    string
	Default string // the name that is taken where none is given
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

// names are those of the list.
func (l *List) names() []string {
	all := make([]string, len(l.models))
	for i, m := range l.models {
		all[i] = m.Name
	}
	return all
}

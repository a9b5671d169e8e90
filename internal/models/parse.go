package models

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rathcluster/rath/internal/models/listfile"
	"github.com/rathcluster/rath/llm"
)

// Read reads a list from a file. Paths of keys are relative to its directory.
func Read(file string) (*List, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("models: %w", err)
	}
	return Parse(file, data)
}

// Parse reads a list. Its errors name file, line and remedy.
func Parse(file string, data []byte) (*List, error) {
	reader, top, err := listfile.Parse(file, "models", data)
	if err != nil {
		return nil, err
	}
	p, l := &parser{reader}, &List{File: file}
	var keys *yaml.Node
	var all Retries
	p.Fields(top, "the list", map[string]func(*yaml.Node){
		"default": func(n *yaml.Node) { l.Default, l.defaultLine = p.Text(n, "default"), n.Line },
		"memory":  func(n *yaml.Node) { l.Memory, l.memoryLine = p.Text(n, "memory"), n.Line },
		"models": func(n *yaml.Node) {
			p.Each(n, "models", func(key, value *yaml.Node) { l.models = append(l.models, p.model(key, value)) })
		},
		"retries": func(n *yaml.Node) { all = p.retries(n, "the list") },
		"keys":    func(n *yaml.Node) { keys = n },
	})
	p.references(l, top.Line)
	if keys != nil {
		p.keys(l, keys)
	}
	for _, m := range l.models {
		m.Retries.defaults(all)
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	return l, nil
}

// parser reads a list of models.
type parser struct{ *listfile.Parser }

func (p *parser) number(n *yaml.Node, what string) int64 { return p.count(n, what, "tokens") }

func (p *parser) count(n *yaml.Node, what, of string) int64 {
	v, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 10, 64)
	if err != nil || v <= 0 || v > 1_000_000_000 {
		p.Fail(n.Line, "%s: %q: want a whole number of %s, 1 to 1,000,000,000", what, llm.Clip(n.Value, 40), of)
		return 0
	}
	return v
}

// model reads an entry.
func (p *parser) model(key, n *yaml.Node) *Model {
	m := &Model{Name: key.Value, Line: key.Line, Kind: KindOpenAI, Can: []string{CanTools}}
	if m.Name == "" || len(m.Name) > 64 || strings.Trim(m.Name, nameBytes) != "" {
		p.Fail(key.Line, "models: name %q: want 1 to 64 of letters, digits and - _ . : /", llm.Clip(m.Name, 80))
	}
	what := "model " + m.Name
	var free, states bool
	var prices *yaml.Node
	p.Fields(n, what, map[string]func(*yaml.Node){
		"kind":    func(n *yaml.Node) { m.Kind = p.kind(n, what) },
		"url":     func(n *yaml.Node) { p.urls(n, m, what) },
		"key":     func(n *yaml.Node) { m.Key, m.ref = p.Key(n, what, "key"), n.Value },
		"id":      func(n *yaml.Node) { m.ID = p.Text(n, what+": id") },
		"context": func(n *yaml.Node) { m.Context = p.number(n, what+": context") },
		"output":  func(n *yaml.Node) { m.Output = p.number(n, what+": output") },
		"can":     func(n *yaml.Node) { m.Can = p.abilities(n, what) },
		"schema_omit": func(n *yaml.Node) {
			m.SchemaOmit = p.Texts(n, what+": schema_omit")
			if (llm.Provider{SchemaOmit: m.SchemaOmit}).Validate() != nil {
				p.Fail(n.Line, "%s: schema_omit: want at most %d keywords of JSON Schema, such as additionalProperties", what, llm.MaxOmitted)
			}
		},
		"retries":  func(n *yaml.Node) { m.Retries = p.retries(n, what) },
		"failures": func(n *yaml.Node) { m.Failures = p.failures(n, what) },
		"timeouts": func(n *yaml.Node) { m.Timeouts = p.timeouts(n, what) },
		"thinking": func(n *yaml.Node) { m.Thinking = p.thinking(n, what) },
		"dimensions": func(n *yaml.Node) {
			m.Dimensions = int(p.count(n, what+": dimensions", "dimensions"))
			if m.Dimensions > llm.MaxDimensions {
				m.Dimensions = 1
				p.Fail(n.Line, "%s: dimensions: more than %d", what, llm.MaxDimensions)
			}
		},
		"fallbacks": func(n *yaml.Node) { m.Fallbacks, m.fallbacksLine = p.Texts(n, what+": fallbacks"), n.Line },
		"limits":    func(n *yaml.Node) { m.Limit = p.limit(n, what) },
		"prices":    func(n *yaml.Node) { prices = n },
		"free":      func(n *yaml.Node) { free = p.Yes(n, what+": free") },

		"states_cost": func(n *yaml.Node) { states = p.Yes(n, what+": states_cost") },
	})
	if m.ID == "" {
		m.ID = m.Name
	}
	p.embeds(n, m, what)
	p.thinks(n, m, what)
	if m.Context > 0 && m.Output >= m.Context {
		p.Fail(n.Line, "%s: output %d leaves no part of context %d for the request; lower it", what, m.Output, m.Context)
	}
	if prices != nil {
		m.Prices, m.Cost, m.Public = p.prices(prices, m), Priced, prices.Kind == yaml.ScalarNode
	}
	switch {
	case free && (states || prices != nil), states && prices != nil:
		p.Fail(n.Line, "%s: it has two sources of cost; keep one of prices, free and states_cost", what)
	case free:
		m.Cost = Free
	case states:
		m.Cost = Stated
	}
	return m
}

// kind reads the protocol of a model's server.
func (p *parser) kind(n *yaml.Node, what string) string {
	if slices.Contains(kinds, n.Value) {
		return n.Value
	}
	p.Fail(n.Line, "%s: kind %q: want %s, or leave it out for %s", what, llm.Clip(n.Value, 40), strings.Join(kinds, ", "), KindOpenAI)
	return KindOpenAI
}

// abilities reads a model's abilities.
func (p *parser) abilities(n *yaml.Node, what string) []string {
	all := p.Texts(n, what+": can")
	for _, can := range all {
		if !slices.Contains(abilities, can) {
			p.Fail(n.Line, "%s: can: %q: want one of %s", what, can, strings.Join(abilities, ", "))
		}
	}
	return all
}

// embeds checks the fields of an entry about vectors.
func (p *parser) embeds(n *yaml.Node, m *Model, what string) {
	switch {
	case !m.Embeds() && m.Dimensions > 0:
		p.Fail(n.Line, "%s: dimensions are of a model that makes vectors; write \"can: [%s]\", or leave them out", what, CanEmbed)
	case !m.Embeds():
	case len(m.Can) > 1 || m.Output > 0:
		p.Fail(n.Line, "%s: a model for embeddings has no answers; write \"can: [%s]\" and no output", what, CanEmbed)
	case m.Kind == KindAnthropic:
		p.Fail(n.Line, "%s: kind %s has no embeddings; leave it out for %s", what, m.Kind, KindOpenAI)
	case len(m.Fallbacks) > 0:
		p.Fail(m.fallbacksLine, "%s: fallbacks: vectors of another model cannot replace its own; remove them", what)
	}
}

// limit reads the limits of an entry.
func (p *parser) limit(n *yaml.Node, what string) (l Limit) {
	what += ": limits"
	before := p.Mistakes()
	number := func(to *int64, name, of string) func(*yaml.Node) {
		return func(n *yaml.Node) { *to = p.count(n, what+": "+name, of) }
	}
	p.Fields(n, what, map[string]func(*yaml.Node){
		"requests": number(&l.Requests, "requests", "requests a minute"), "tokens": number(&l.Tokens, "tokens", "tokens a minute"),
		"concurrency": number(&l.Concurrency, "concurrency", "calls at one time"),
	})
	if l == (Limit{}) && p.Mistakes() == before {
		p.Fail(n.Line, "%s: want requests or tokens, each a minute, or concurrency", what)
	}
	return l
}

// keys reads the limits of keys, which models of the list use.
func (p *parser) keys(l *List, n *yaml.Node) {
	p.Each(n, "keys", func(key, value *yaml.Node) {
		if !slices.ContainsFunc(l.models, func(m *Model) bool { return m.ref != "" && m.ref == key.Value }) {
			p.Fail(key.Line, "keys: no model of the list has this key; write it as it stands at \"key:\", such as env:NAME")
			return
		}
		p.Fields(value, "key "+key.Value, map[string]func(*yaml.Node){
			"limits": func(n *yaml.Node) { l.keys = append(l.keys, KeyLimit{key.Value, p.limit(n, "key "+key.Value)}) },
		})
	})
}

const nameBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/"

// maxReplicas bounds the servers of a pool.
const maxReplicas = 64

// urls reads the server of a model, or those of its pool.
func (p *parser) urls(n *yaml.Node, m *Model, what string) {
	if n.Kind != yaml.SequenceNode {
		m.URL = p.url(n, what)
		return
	}
	for _, one := range n.Content {
		url := p.url(one, what)
		if url != "" && slices.Contains(m.URLs, url) {
			p.Fail(one.Line, "%s: url %s is listed twice", what, url)
		}
		m.URLs = append(m.URLs, url)
	}
	if len(m.URLs) == 0 || len(m.URLs) > maxReplicas {
		p.Fail(n.Line, "%s: url: want one server, or a list of 1 to %d that have the same model", what, maxReplicas)
		return
	}
	m.URL = m.URLs[0]
}

func (p *parser) url(n *yaml.Node, what string) string {
	text := p.Text(n, what+": url")
	if err := (llm.Provider{BaseURL: text}).Validate(); err != nil {
		said := strings.TrimPrefix(err.Error(), llm.CodeInvalidRequest.Error()+": provider: base_url ")
		p.Fail(n.Line, "%s: url %s", what, strings.ReplaceAll(said, "the variable that key_ref names", "the file or variable that key names"))
	}
	return text
}

// prices reads the prices of a model: "public", or its own.
func (p *parser) prices(n *yaml.Node, m *Model) *Prices {
	what := "model " + m.Name + ": prices"
	if n.Kind == yaml.ScalarNode {
		public, err := Public(m.ID)
		switch {
		case n.Value != "public":
			p.Fail(n.Line, "%s: want date, input and output, or the word public", what)
			return nil
		case err != nil:
			p.Fail(n.Line, "%s: %v", what, err)
		}
		return public
	}
	return p.own(n, what, m.Embeds())
}

// own reads prices in US dollars for a million tokens. Of vectors there is no output.
func (p *parser) own(n *yaml.Node, what string, vectors bool) *Prices {
	before := p.Mistakes()
	out := &Prices{CachedInput: -1, CacheWrite: -1, Input: -1, Output: -1}
	if vectors {
		out.Output = 0
	}
	dollars := func(to *int64, name string) func(*yaml.Node) {
		return func(n *yaml.Node) {
			v, err := MicroUSD(n.Value)
			if err == nil && v > maxPrice {
				err = fmt.Errorf("%q: more than 1000 US dollars for a million tokens", n.Value)
			}
			if err != nil {
				p.Fail(n.Line, "%s: %s: %v", what, name, err)
			}
			*to = v
		}
	}
	p.Fields(n, what, map[string]func(*yaml.Node){
		"date": func(n *yaml.Node) {
			if _, err := time.Parse(time.DateOnly, n.Value); err != nil {
				p.Fail(n.Line, "%s: date %q: want a day such as 2026-11-26", what, llm.Clip(n.Value, 40))
			}
			out.Date = n.Value
		},
		"input": dollars(&out.Input, "input"), "cached_input": dollars(&out.CachedInput, "cached_input"),
		"cache_write": dollars(&out.CacheWrite, "cache_write"), "output": dollars(&out.Output, "output"),
	})
	if p.Mistakes() > before {
		return out
	}
	if out.Date == "" || out.Input < 0 || out.Output < 0 {
		p.Fail(n.Line, "%s: date, input and output are needed, in US dollars for a million tokens", what)
	}
	if out.CachedInput < 0 {
		out.CachedInput = out.Input
	}
	if out.CacheWrite < 0 {
		out.CacheWrite = out.Input
	}
	if *out == (Prices{Date: out.Date}) {
		p.Fail(n.Line, "%s: all are 0; write \"free: true\" instead", what)
	}
	return out
}

// references checks the names that the list itself uses.
func (p *parser) references(l *List, line int) {
	if len(l.models) == 0 {
		if p.Mistakes() == 0 {
			p.Fail(line, "the list has no models; put them below \"models:\"")
		}
		return
	}
	if l.Default != "" && l.Lookup(l.Default) == nil {
		p.Fail(l.defaultLine, "default: there is no model %q; name one of %s", l.Default, strings.Join(l.names(), ", "))
	}
	if m := l.Lookup(l.Default); m != nil && m.Embeds() {
		p.Fail(l.defaultLine, "default: model %s only embeds texts; name another one", m.Name)
	}
	if m := l.Lookup(l.Memory); l.Memory != "" && (m == nil || !m.Embeds()) {
		p.Fail(l.memoryLine, "memory: model %q makes no vectors of notes; name one with \"can: [%s]\"", l.Memory, CanEmbed)
	}
	for _, m := range l.models {
		for _, name := range m.Fallbacks {
			if other := l.Lookup(name); other != nil && other.Embeds() {
				p.Fail(m.fallbacksLine, "model %s: fallbacks: model %s only embeds texts; remove it", m.Name, name)
			}
			if l.Lookup(name) == nil || name == m.Name {
				p.Fail(m.fallbacksLine, "model %s: fallbacks: there is no other model %q; name one of %s", m.Name, name, strings.Join(l.names(), ", "))
			}
		}
	}
}

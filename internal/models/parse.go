package models

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/rathcluster/rath/llm"
)

// maxFile bounds a list in bytes, and maxModels its entries.
const (
	maxFile   = 1 << 20
	maxModels = 1000
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
	p := &parser{file: file}
	l := &List{File: file}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: it has %d bytes, at most %d are read", file, len(data), maxFile)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: there is nothing in it; put models below \"models:\"", file)
	} else if err != nil {
		return nil, fmt.Errorf("%s: %s", file, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	p.fields(doc.Content[0], "the list", map[string]func(*yaml.Node){
		"default": func(n *yaml.Node) { l.Default = p.text(n, "default") },
		"models": func(n *yaml.Node) {
			p.each(n, "models", func(key, value *yaml.Node) { l.models = append(l.models, p.model(key, value)) })
		},
	})
	if p.err == nil {
		p.references(l, doc.Content[0].Line)
	}
	if p.err != nil {
		return nil, p.err
	}
	return l, nil
}

// parser keeps the first error.
type parser struct {
	file string
	err  error
}

func (p *parser) fail(line int, format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("%s:%d: %s", p.file, line, fmt.Sprintf(format, args...))
	}
}

// each calls f for the entries of a mapping, whose keys must differ.
func (p *parser) each(n *yaml.Node, what string, f func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		p.fail(n.Line, "%s: want lines of the form \"name: value\"", what)
		return
	}
	lines := map[string]int{}
	for i := 0; i < len(n.Content) && p.err == nil; i += 2 {
		key := n.Content[i]
		if first, again := lines[key.Value]; again {
			p.fail(key.Line, "%s: %q is in line %d already; give each its own name, or remove one", what, llm.Clip(key.Value, 80), first)
			return
		}
		lines[key.Value] = key.Line
		f(key, n.Content[i+1])
	}
	if len(lines) > maxModels {
		p.fail(n.Line, "%s: %d entries, at most %d are read", what, len(lines), maxModels)
	}
}

// fields reads a mapping of known fields.
func (p *parser) fields(n *yaml.Node, what string, known map[string]func(*yaml.Node)) {
	p.each(n, what, func(key, value *yaml.Node) {
		read, ok := known[key.Value]
		if !ok {
			names := make([]string, 0, len(known))
			for name := range known {
				names = append(names, name)
			}
			slices.Sort(names)
			p.fail(key.Line, "%s: unknown field %q; the fields are %s", what, llm.Clip(key.Value, 80), strings.Join(names, ", "))
			return
		}
		read(value)
	})
}

func (p *parser) text(n *yaml.Node, what string) string {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Value == "" {
		p.fail(n.Line, "%s: want a text", what)
		return ""
	}
	if len(n.Value) > llm.MaxNameLen || strings.ContainsFunc(n.Value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		p.fail(n.Line, "%s: want at most %d printable bytes", what, llm.MaxNameLen)
	}
	return n.Value
}

func (p *parser) texts(n *yaml.Node, what string) (all []string) {
	if n.Kind != yaml.SequenceNode {
		p.fail(n.Line, "%s: want a list, such as [a, b]", what)
		return nil
	}
	for _, one := range n.Content {
		text := p.text(one, what)
		if slices.Contains(all, text) {
			p.fail(one.Line, "%s: %q is there twice; remove one", what, text)
		}
		all = append(all, text)
	}
	return all
}

func (p *parser) number(n *yaml.Node, what string) int64 {
	v, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 10, 64)
	if err != nil || v <= 0 || v > 1_000_000_000 {
		p.fail(n.Line, "%s: %q: want a whole number of tokens", what, llm.Clip(n.Value, 40))
	}
	return v
}

func (p *parser) yes(n *yaml.Node, what string) bool {
	if n.Value != "true" && n.Value != "false" {
		p.fail(n.Line, "%s: %q: want true or false", what, llm.Clip(n.Value, 40))
	}
	return n.Value == "true"
}

// model reads an entry.
func (p *parser) model(key, n *yaml.Node) *Model {
	m := &Model{Name: key.Value, Line: key.Line, Kind: KindOpenAI, Can: []string{CanTools}}
	if m.Name == "" || len(m.Name) > 64 || strings.Trim(m.Name, nameBytes) != "" {
		p.fail(key.Line, "models: name %q: want 1 to 64 of letters, digits and - _ . : /", llm.Clip(m.Name, 80))
	}
	what := "model " + m.Name
	var free, states bool
	var prices *yaml.Node
	p.fields(n, what, map[string]func(*yaml.Node){
		"kind":      func(n *yaml.Node) { m.Kind = p.text(n, what+": kind") },
		"url":       func(n *yaml.Node) { m.URL = p.url(n, what) },
		"key":       func(n *yaml.Node) { m.Key = p.key(n, what) },
		"id":        func(n *yaml.Node) { m.ID = p.text(n, what+": id") },
		"context":   func(n *yaml.Node) { m.Context = p.number(n, what+": context") },
		"output":    func(n *yaml.Node) { m.Output = p.number(n, what+": output") },
		"can":       func(n *yaml.Node) { m.Can = p.texts(n, what+": can") },
		"fallbacks": func(n *yaml.Node) { m.Fallbacks = p.texts(n, what+": fallbacks") },
		"prices":    func(n *yaml.Node) { prices = n },
		"free":      func(n *yaml.Node) { free = p.yes(n, what+": free") },

		"states_cost": func(n *yaml.Node) { states = p.yes(n, what+": states_cost") },
	})
	if m.ID == "" {
		m.ID = m.Name
	}
	if !slices.Contains(kinds, m.Kind) {
		p.fail(n.Line, "%s: kind %q: want %s, or leave it out for %s", what, m.Kind, strings.Join(kinds, ", "), KindOpenAI)
	}
	for _, can := range m.Can {
		if !slices.Contains(abilities, can) {
			p.fail(n.Line, "%s: can: %q: want of %s", what, can, strings.Join(abilities, ", "))
		}
	}
	if m.Context > 0 && m.Output >= m.Context {
		p.fail(n.Line, "%s: output %d leaves nothing of context %d for the request; lower it", what, m.Output, m.Context)
	}
	if prices != nil {
		m.Prices, m.Cost = p.prices(prices, m), Priced
	}
	switch {
	case free && (states || prices != nil), states && prices != nil:
		p.fail(n.Line, "%s: it says its cost in two ways; keep one of prices, free and states_cost", what)
	case free:
		m.Cost = Free
	case states:
		m.Cost = Stated
	}
	return m
}

const nameBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/"

func (p *parser) url(n *yaml.Node, what string) string {
	text := p.text(n, what+": url")
	if err := (llm.Provider{BaseURL: text}).Validate(); err != nil && p.err == nil {
		said := strings.TrimPrefix(err.Error(), llm.CodeInvalidRequest.Error()+": provider: base_url ")
		p.fail(n.Line, "%s: url %s", what, strings.ReplaceAll(said, "the variable that key_ref names", "the file or variable that key names"))
	}
	return text
}

// key reads a reference to a key. What is none may be a key, so the error does not
// repeat it.
func (p *parser) key(n *yaml.Node, what string) string {
	kind, name, _ := strings.Cut(n.Value, ":")
	switch {
	case n.Kind == yaml.ScalarNode && kind == "env" && name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == "" && !strings.HasPrefix(name, "sk-"):
		return n.Value
	case n.Kind == yaml.ScalarNode && kind == "file" && name != "" && len(name) <= llm.MaxNameLen-len("file:"):
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(p.file), name)
		}
		return "file:" + name
	}
	p.fail(n.Line, "%s: key holds no reference: a key does not belong into this file; write env:NAME for a variable of the environment, or file:PATH", what)
	return ""
}

// prices reads the prices of a model: "public", or its own.
func (p *parser) prices(n *yaml.Node, m *Model) *Prices {
	what := "model " + m.Name + ": prices"
	if n.Kind == yaml.ScalarNode {
		public, err := Public(m.ID)
		switch {
		case n.Value != "public":
			p.fail(n.Line, "%s: want date, input and output, or the word public", what)
		case err != nil:
			p.fail(n.Line, "%s: %v", what, err)
		}
		return public
	}
	return p.own(n, what)
}

// own reads prices in US dollars for a million tokens.
func (p *parser) own(n *yaml.Node, what string) *Prices {
	out := &Prices{CachedInput: -1, CacheWrite: -1, Input: -1, Output: -1}
	dollars := func(to *int64, name string) func(*yaml.Node) {
		return func(n *yaml.Node) {
			v, err := MicroUSD(n.Value)
			if err == nil && v > maxPrice {
				err = fmt.Errorf("%q: more than 1000 US dollars for a million tokens", n.Value)
			}
			if err != nil {
				p.fail(n.Line, "%s: %s: %v", what, name, err)
			}
			*to = v
		}
	}
	p.fields(n, what, map[string]func(*yaml.Node){
		"date": func(n *yaml.Node) {
			if _, err := time.Parse(time.DateOnly, n.Value); err != nil {
				p.fail(n.Line, "%s: date %q: want a day such as 2026-11-26", what, llm.Clip(n.Value, 40))
			}
			out.Date = n.Value
		},
		"input": dollars(&out.Input, "input"), "cached_input": dollars(&out.CachedInput, "cached_input"),
		"cache_write": dollars(&out.CacheWrite, "cache_write"), "output": dollars(&out.Output, "output"),
	})
	if out.Date == "" || out.Input < 0 || out.Output < 0 {
		p.fail(n.Line, "%s: date, input and output are needed, in US dollars for a million tokens", what)
	}
	if out.CachedInput < 0 {
		out.CachedInput = out.Input
	}
	if out.CacheWrite < 0 {
		out.CacheWrite = out.Input
	}
	if *out == (Prices{Date: out.Date}) {
		p.fail(n.Line, "%s: all are 0; write \"free: true\" instead", what)
	}
	return out
}

// references checks the names that the list itself uses.
func (p *parser) references(l *List, line int) {
	if len(l.models) == 0 {
		p.fail(line, "the list has no models; put them below \"models:\"")
		return
	}
	if l.Default != "" && l.Lookup(l.Default) == nil {
		p.fail(line, "default: there is no model %q; name one of %s", l.Default, strings.Join(l.names(), ", "))
	}
	for _, m := range l.models {
		for _, name := range m.Fallbacks {
			if l.Lookup(name) == nil || name == m.Name {
				p.fail(m.Line, "model %s: fallbacks: there is no other model %q; name one of %s", m.Name, name, strings.Join(l.names(), ", "))
			}
		}
	}
}

package models

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rathcluster/rath/llm"
)

// maxOpenRath is the maximum size of a configuration file of OpenRath, in bytes.
const maxOpenRath = 1 << 20

// FromOpenRath makes a list of the providers in the data of OpenRath's config.json. It
// copies no keys: the list names the environment variable for each. remarks are further
// hints for the operator, such as a setting without an equivalent here. All mistakes
// are reported together, always in the same order.
func FromOpenRath(file string, data []byte) (list []byte, remarks []string, err error) {
	var c struct {
		Version int `json:"version"`
		LLM     struct {
			Default   string                       `json:"default_provider"`
			Embedding string                       `json:"embedding_provider"`
			Vision    string                       `json:"vlm_provider"`
			Providers map[string]*openRathProvider `json:"providers"`
		} `json:"llm"`
	}
	if len(data) > maxOpenRath {
		return nil, nil, fmt.Errorf("models: %s has more than %d bytes: it is no configuration of OpenRath", file, maxOpenRath)
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, nil, fmt.Errorf("models: %s: %w; want the config.json of OpenRath", placeOf(file, data, err), err)
	}
	switch {
	case c.Version > 1:
		return nil, nil, fmt.Errorf("models: %s has version %d, and this release reads version 1; write the list by hand, see docs/models.md", file, c.Version)
	case len(c.LLM.Providers) == 0:
		return nil, nil, fmt.Errorf("models: %s has no llm.providers; want the config.json of OpenRath", file)
	}
	var wrong []error
	fail := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("models: %s: "+format, append([]any{file}, args...)...))
	}
	for _, said := range []struct{ what, name string }{{"default_provider", c.LLM.Default}, {"embedding_provider", c.LLM.Embedding}, {"vlm_provider", c.LLM.Vision}} {
		if _, ok := c.LLM.Providers[said.name]; said.name != "" && !ok {
			fail("llm.%s is %q, which is not among llm.providers; correct the name", said.what, llm.Clip(said.name, 80))
		}
	}
	out := openRathList{Default: c.LLM.Default, Models: map[string]openRathEntry{}}
	first := map[string]string{} // the key of each kind that its usual variable is for
	for _, name := range slices.Sorted(maps.Keys(c.LLM.Providers)) {
		p := c.LLM.Providers[name]
		if p == nil {
			fail("llm.providers.%s is null; remove it", llm.Clip(name, 80))
			continue
		}
		e, err := p.entry(first)
		if err != nil {
			fail("llm.providers.%s: %w", llm.Clip(name, 80), err)
			continue
		}
		if e.Key == "" && p.Key != "" {
			e.Key = "env:" + variable(name)
		}
		if p.Key != "" {
			remarks = append(remarks, fmt.Sprintf("%s: its key is not taken over; export %s", name, strings.TrimPrefix(e.Key, "env:")))
		}
		switch {
		case name == c.LLM.Embedding && name != c.LLM.Default && name != c.LLM.Vision:
			e.Can, e.Output = []string{CanEmbed}, 0
		case name == c.LLM.Vision:
			e.Can = []string{CanTools, CanImages}
		}
		if p.Temperature != nil {
			remarks = append(remarks, fmt.Sprintf("%s: temperature %v is none of a list; set it in the agent's llm.Provider", name, *p.Temperature))
		}
		out.Models[name] = e
	}
	if len(wrong) > 0 {
		return nil, nil, errors.Join(wrong...)
	}
	if list, err = yaml.Marshal(out); err != nil {
		return nil, nil, fmt.Errorf("models: %w", err)
	}
	if _, err := Parse(file, list); err != nil { // such as a name that is none here
		return nil, nil, fmt.Errorf("%w; rename or correct the provider in %s", err, file)
	}
	return list, remarks, nil
}

// openRathProvider is a provider in OpenRath's form.
type openRathProvider struct {
	Kind        string   `json:"provider_kind"`
	Model       string   `json:"model"`
	Key         string   `json:"api_key"`
	URL         string   `json:"base_url"`
	Temperature *float64 `json:"temperature"`
	MaxTokens   *int64   `json:"max_tokens"`
}

// openRathList is the resulting list.
type openRathList struct {
	Default string                   `yaml:"default,omitempty"`
	Models  map[string]openRathEntry `yaml:"models"`
}

type openRathEntry struct {
	Kind   string   `yaml:"kind"`
	URL    string   `yaml:"url,omitempty"`
	Key    string   `yaml:"key,omitempty"`
	ID     string   `yaml:"id"`
	Output int64    `yaml:"output,omitempty"`
	Can    []string `yaml:"can,flow,omitempty"`
}

// entry returns the provider as an entry. Its Key is "" if it needs a variable of its
// own: the usual variable of the kind is for the first key and the kind's own server.
func (p *openRathProvider) entry(first map[string]string) (openRathEntry, error) {
	usual := map[string]string{KindOpenAI: "OPENAI_API_KEY", KindAnthropic: "ANTHROPIC_API_KEY"}
	e := openRathEntry{Kind: p.Kind, URL: p.URL, ID: p.Model}
	if usual[p.Kind] == "" {
		return e, fmt.Errorf("provider_kind %q; want %s or %s", llm.Clip(p.Kind, 40), KindOpenAI, KindAnthropic)
	}
	if p.Model == "" {
		return e, errors.New("it has no model; name one")
	}
	if u, err := url.Parse(p.URL); err != nil || u.User != nil || u.RawQuery != "" {
		return e, errors.New("base_url is no plain address, or holds a password; keep the address alone")
	}
	if p.MaxTokens != nil {
		if *p.MaxTokens <= 0 {
			return e, fmt.Errorf("max_tokens %d; want a whole number of tokens, or leave it out", *p.MaxTokens)
		}
		e.Output = *p.MaxTokens
	}
	if p.URL == "" && (p.Key == "" || first[p.Kind] == "" || first[p.Kind] == p.Key) {
		e.Key = "env:" + usual[p.Kind]
		first[p.Kind] = p.Key
	}
	return e, nil
}

// variable is the name of the environment variable for a provider's key.
func variable(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, name) + "_API_KEY"
}

// placeOf is the line and column of a mistake in JSON, with the name of the file.
func placeOf(file string, data []byte, err error) string {
	at := int64(-1)
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = e.Offset
	} else if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		at = e.Offset
	}
	if at < 0 || at > int64(len(data)) {
		return file
	}
	before := data[:at]
	return fmt.Sprintf("%s:%d:%d", file, bytes.Count(before, []byte("\n"))+1, len(before)-bytes.LastIndexByte(before, '\n')-1)
}

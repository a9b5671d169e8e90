package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/llm"
)

// endpoint is a provider after resolution.
type endpoint struct {
	base  string // without a trailing slash
	host  string
	model string
	key   string
	// keyName says where the key came from, or would have.
	keyName string
}

func (m *Models) env(name string) string {
	if m.o.Env == nil {
		return ""
	}
	return strings.TrimSpace(m.o.Env(name))
}

func (m *Models) resolve(p llm.Provider) (endpoint, error) {
	var e endpoint
	configured, source := firstSet(
		"the configured base URL", m.o.BaseURL,
		EnvBase, m.env(EnvBase),
		"the default base URL", DefaultBaseURL,
	)
	e.base = configured
	if p.BaseURL != "" {
		e.base, source = p.BaseURL, "the provider's base_url"
	}
	e.base = strings.TrimRight(e.base, "/")
	// Providers were checked before; this is for the configured ones.
	if err := (llm.Provider{BaseURL: e.base}).Validate(); err != nil {
		return e, &llm.Error{Code: llm.CodeInvalidRequest, Message: fmt.Sprintf("%s: %s", source, strings.TrimPrefix(err.Error(), llm.CodeInvalidRequest.Error()+": provider: "))}
	}
	u, err := url.Parse(e.base)
	if err != nil {
		return e, &llm.Error{Code: llm.CodeInvalidRequest, Message: source + " is not a URL"}
	}
	e.host = u.Host

	e.model, _ = firstSet("", p.Model, "", m.o.DefaultModel, "", m.env(EnvModel))

	switch {
	case p.KeyRef != "":
		e.keyName = p.KeyRef
		if m.o.Key != nil {
			k, err := m.o.Key(p.KeyRef)
			if err != nil {
				return e, &llm.Error{Code: llm.CodeNoKey, Message: err.Error()}
			}
			e.key = strings.TrimSpace(k)
		}
		if e.key == "" {
			e.key = m.env(p.KeyRef)
		}
		if e.key == "" {
			return e, &llm.Error{Code: llm.CodeNoKey, Message: fmt.Sprintf(
				"the key %q that the provider for %s refers to is neither configured nor in the environment; export %s=... where this process starts",
				p.KeyRef, e.host, p.KeyRef)}
		}
	case sameServer(e.base, configured), sameServer(e.base, DefaultBaseURL):
		e.keyName, e.key = EnvKey, m.env(EnvKey)
	}
	if e.key == "" && sameServer(e.base, DefaultBaseURL) {
		return e, &llm.Error{Code: llm.CodeNoKey, Message: fmt.Sprintf(
			"no key for %s; export %s=..., or point %s at a server that needs none, such as http://localhost:11434/v1",
			e.host, EnvKey, EnvBase)}
	}
	if strings.ContainsFunc(e.key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return e, &llm.Error{Code: llm.CodeNoKey, Message: fmt.Sprintf("the key in %s has spaces or other characters no key has", e.keyName)}
	}
	return e, nil
}

// firstSet returns the first value that is not blank, and its name, of
// name-value pairs.
func firstSet(pairs ...string) (value, name string) {
	for i := 0; i < len(pairs); i += 2 {
		if v := strings.TrimSpace(pairs[i+1]); v != "" {
			return v, pairs[i]
		}
	}
	return "", ""
}

// sameServer reports whether two base URLs have one scheme and host.
func sameServer(a, b string) bool {
	u, err := url.Parse(a)
	if err != nil {
		return false
	}
	v, err := url.Parse(b)
	return err == nil && u.Scheme == v.Scheme && strings.EqualFold(u.Host, v.Host)
}

// listTimeout bounds the question what models a server has.
const listTimeout = 5 * time.Second

// noModel is the error for a provider without a model. It asks the server
// what there is, to save the user that step.
func (m *Models) noModel(ctx context.Context, e endpoint) error {
	offer := ""
	if names := m.list(ctx, e); len(names) > 0 {
		more := ""
		if len(names) > 10 {
			names, more = names[:10], fmt.Sprintf(" and %d more", len(names)-10)
		}
		offer = fmt.Sprintf("; %s offers %s%s", e.host, llm.Clip(strings.Join(names, ", "), 400), more)
	}
	return &llm.Error{Code: llm.CodeNoModel, Message: fmt.Sprintf("no model is named: set the provider's model, the default model or %s%s", EnvModel, offer)}
}

// list returns the names of the server's models, sorted; nil if it does not
// tell.
func (m *Models) list(ctx context.Context, e endpoint) []string {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base+"/models", nil)
	if err != nil {
		return nil
	}
	if e.key != "" {
		req.Header.Set("Authorization", "Bearer "+e.key)
	}
	resp, err := m.http.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	var list struct {
		Data []struct {
			ID word `json:"id"`
		} `json:"data"`
	}
	if resp.StatusCode != http.StatusOK || json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&list) != nil {
		return nil
	}
	var names []string
	for _, d := range list.Data {
		if d.ID != "" {
			names = append(names, llm.Clip(string(d.ID), 100))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

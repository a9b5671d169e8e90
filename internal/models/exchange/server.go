package exchange

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/llm"
)

// Server resolves providers to endpoints. It is safe for concurrent use.
type Server struct {
	o    llm.ServerOptions
	p    Protocol
	http *http.Client
}

// NewServer returns the servers of a protocol. Durations and counts of zero take their
// defaults.
func NewServer(o llm.ServerOptions, p Protocol) *Server {
	o.Timeouts = o.Timeouts.Or(llm.Timeouts{Connect: DefaultConnect, FirstToken: DefaultFirstToken, Silence: DefaultSilence, Whole: DefaultWhole})
	orDefault(&o.Tail, DefaultTail)
	orDefault(&o.MaxFrame, DefaultMaxFrame)
	orDefault(&o.MaxResponse, DefaultMaxResponse)
	if o.Transport == nil {
		o.Transport = newTransport()
	}
	return &Server{o: o, p: p, http: &http.Client{
		Transport: o.Transport,
		// A redirected POST would lose its body or send it elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func orDefault[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// newTransport keeps as many connections as there are parallel calls: with the default
// of two per host, about every other call would open a new one.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: llm.MaxConnect, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:   llm.MaxConnect, // each call has a bound of its own, see send
		ExpectContinueTimeout: time.Second,
		MaxIdleConns:          1024,
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       90 * time.Second,
		ForceAttemptHTTP2:     true,
		// The limit also covers all heads of status 1xx together.
		MaxResponseHeaderBytes: 256 << 10,
		// Compressed streams arrive in bursts.
		DisableCompression: true,
	}
}

// Endpoint is a provider after resolution.
type Endpoint struct {
	server *Server
	base   string // without a trailing slash
	// Host is the server's host, and Model the requested model.
	Host, Model string
	key         string
	azure       bool   // the key goes into Azure's header
	version     string // of Azure's older API
	// keyName is the source of the key, or its expected source.
	keyName  string
	failures []llm.FailureRule
	timeouts llm.Timeouts
}

func (m *Server) env(name string) string {
	if m.o.Env == nil {
		return ""
	}
	return strings.TrimSpace(m.o.Env(name))
}

// Resolve finds the server, the key and the model of p. The error is an *llm.Error. If
// no model is configured, the error lists the server's models.
func (m *Server) Resolve(ctx context.Context, p llm.Provider) (*Endpoint, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	e, err := m.resolve(p)
	if err != nil {
		return nil, err
	}
	if e.Model == "" {
		return nil, m.noModel(ctx, e)
	}
	return e, nil
}

func (m *Server) resolve(p llm.Provider) (*Endpoint, error) {
	e := &Endpoint{server: m, failures: p.Failures, timeouts: p.Timeouts.Or(m.o.Timeouts)}
	configured, source := firstSet(
		"the configured base URL", m.o.BaseURL,
		m.p.EnvBase, m.env(m.p.EnvBase),
		m.p.Azure.Endpoint, m.azureBase(),
		"the default base URL", m.p.BaseURL,
	)
	e.base = configured
	named := source == m.p.Azure.Endpoint && source != ""
	if p.BaseURL != "" {
		e.base, source = p.BaseURL, "the provider's base_url"
	}
	e.base = strings.TrimRight(e.base, "/")
	if !strings.HasSuffix(e.base, m.p.Root) {
		e.base += m.p.Root
	}
	// Providers were checked before; this check is for the configured ones.
	if err := (llm.Provider{BaseURL: e.base}).Validate(); err != nil {
		return nil, &llm.Error{Code: llm.CodeInvalidRequest, Message: fmt.Sprintf("%s: %s", source, strings.TrimPrefix(err.Error(), llm.CodeInvalidRequest.Error()+": provider: "))}
	}
	u, err := url.Parse(e.base)
	if err != nil {
		return nil, &llm.Error{Code: llm.CodeInvalidRequest, Message: source + " is not a URL"}
	}
	e.Host = u.Host
	e.azure = m.p.Azure.Endpoint != "" && IsAzure(e.Host) || named && sameServer(e.base, configured)
	if named && strings.HasPrefix(e.base, strings.TrimRight(m.env(m.p.Azure.Endpoint), "/")+"/") && strings.HasSuffix(e.base, "/openai") {
		e.version = m.env(m.p.Azure.Version)
	}

	e.Model, _ = firstSet("", p.Model, "", m.o.DefaultModel, "", m.env(m.p.EnvModel))

	switch {
	case p.KeyRef != "":
		e.keyName = p.KeyRef
		if m.o.Key != nil {
			k, err := m.o.Key(p.KeyRef)
			if err != nil {
				return nil, &llm.Error{Code: llm.CodeNoKey, Message: err.Error()}
			}
			e.key = strings.TrimSpace(k)
		}
		if e.key == "" {
			e.key = m.env(p.KeyRef)
		}
		if e.key == "" {
			return nil, &llm.Error{Code: llm.CodeNoKey, Message: fmt.Sprintf(
				"the key %q that the provider for %s refers to is neither configured nor in the environment; export %s=... where this process starts",
				p.KeyRef, e.Host, p.KeyRef)}
		}
	case sameServer(e.base, configured), sameServer(e.base, m.p.BaseURL):
		e.keyName, e.key = m.processKey(e.azure)
		if e.azure && e.key == "" {
			return nil, &llm.Error{Code: llm.CodeNoKey, Message: fmt.Sprintf("no key for %s; export %s=...", e.Host, m.p.Azure.Keys[0])}
		}
	}
	if e.key == "" && sameServer(e.base, m.p.BaseURL) {
		return nil, &llm.Error{Code: llm.CodeNoKey, Message: fmt.Sprintf(
			"no key for %s; export %s=..., or point %s at a server that needs none, such as http://localhost:11434/v1",
			e.Host, m.p.EnvKey, m.p.EnvBase)}
	}
	if strings.ContainsFunc(e.key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, &llm.Error{Code: llm.CodeNoKey, Message: fmt.Sprintf("the key in %s has spaces or other characters no key has", e.keyName)}
	}
	return e, nil
}

// firstSet returns the first value that is not blank, and its name, from name-value
// pairs.
func firstSet(pairs ...string) (value, name string) {
	for i := 0; i < len(pairs); i += 2 {
		if v := strings.TrimSpace(pairs[i+1]); v != "" {
			return v, pairs[i]
		}
	}
	return "", ""
}

// String names the endpoint. It must not contain the key.
func (e *Endpoint) String() string { return fmt.Sprintf("model %q at %s", e.Model, e.Host) }

// GoString is String.
func (e *Endpoint) GoString() string { return e.String() }

// sameServer reports whether two base URLs have one scheme and host.
func sameServer(a, b string) bool {
	u, err := url.Parse(a)
	if err != nil {
		return false
	}
	v, err := url.Parse(b)
	return err == nil && u.Scheme == v.Scheme && strings.EqualFold(u.Host, v.Host)
}

// listTimeout bounds the request for a server's list of models.
const listTimeout = 5 * time.Second

// noModel is the error for a provider without a model. It lists the server's models, to
// save the user that step.
func (m *Server) noModel(ctx context.Context, e *Endpoint) error {
	offer := ""
	if names := m.list(ctx, e); len(names) > 0 {
		more := ""
		if len(names) > 10 {
			names, more = names[:10], fmt.Sprintf(" and %d more", len(names)-10)
		}
		offer = fmt.Sprintf("; %s offers %s%s", e.Host, llm.Clip(strings.Join(names, ", "), 400), more)
	}
	return &llm.Error{Code: llm.CodeNoModel, Message: fmt.Sprintf("no model is named: set the provider's model, the default model or %s%s", m.p.EnvModel, offer)}
}

// list returns the names of the server's models, sorted; nil if the server does not
// list them.
func (m *Server) list(ctx context.Context, e *Endpoint) []string {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.at("/models"), nil)
	if err != nil {
		return nil
	}
	e.sign(req.Header)
	resp, err := m.http.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	var list struct {
		Data []struct {
			ID Word `json:"id"`
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

package exchange

import (
	"net/http"
	"net/url"
	"strings"
)

// Azure are the environment variables for servers of OpenAI's protocol at Azure, which
// accept keys in a header of their own.
type Azure struct {
	// Endpoint is a resource such as https://NAME.openai.azure.com.
	Endpoint string
	// Keys are tried in their order, before the protocol's own.
	Keys []string
	// Version is the variable of the older API's version, whose paths name the
	// deployment: the model. Without a version the newer API is used.
	Version string
}

// IsAzure reports whether a host is one of Azure's.
func IsAzure(host string) bool {
	host, _, _ = strings.Cut(strings.ToLower(host), ":")
	for _, suffix := range []string{".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com"} {
		if strings.HasSuffix(host, suffix) {
			return true
		}
	}
	return false
}

// azureBase is the root of the API of the environment's resource, "" without one.
func (m *Server) azureBase() string {
	base := strings.TrimRight(m.env(m.p.Azure.Endpoint), "/")
	if u, err := url.Parse(base); base == "" || err != nil || strings.Trim(u.Path, "/") != "" {
		return base
	}
	if m.env(m.p.Azure.Version) != "" {
		return base + "/openai"
	}
	return base + "/openai/v1"
}

// processKey is the key of the process for a server that its configuration names.
func (m *Server) processKey(azure bool) (name, key string) {
	if azure {
		for _, name := range m.p.Azure.Keys {
			if key := m.env(name); key != "" {
				return name, key
			}
		}
	}
	return m.p.EnvKey, m.env(m.p.EnvKey)
}

// at is the URL of a path below the base.
func (e *Endpoint) at(path string) string {
	if e.version == "" {
		return e.base + path
	}
	if path == "/chat/completions" || path == PathEmbeddings {
		path = "/deployments/" + url.PathEscape(e.Model) + path
	}
	return e.base + path + "?api-version=" + url.QueryEscape(e.version)
}

// sign puts the key into the headers of a request.
func (e *Endpoint) sign(h http.Header) {
	if e.azure && e.key != "" {
		h.Set("Api-Key", e.key)
		return
	}
	e.server.p.Sign(h, e.key)
}

package mcp

import (
	"net/http"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rathcluster/rath/internal/listfile"
)

// overHTTP is the transport of a server with a URL. Its token is read for each request, so
// that it can change.
func overHTTP(s *Server, env func(string) string) sdk.Transport {
	return &sdk.StreamableClientTransport{
		Endpoint: s.URL, HTTPClient: &http.Client{Transport: bearer{s, env}, CheckRedirect: sameHost}, MaxRetries: -1, DisableStandaloneSSE: true, MaxEventSize: maxLine,
	}
}

// bearer adds the token of a server to requests for it.
type bearer struct {
	s   *Server
	env func(string) string
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.s.Token != "" {
		token, err := listfile.Secret(b.env, b.s.file, b.s.Token, "token")
		if err != nil {
			return nil, err
		}
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// sameHost keeps the token from other hosts.
func sameHost(r *http.Request, via []*http.Request) error {
	if len(via) > 5 || r.URL.Host != via[0].URL.Host || r.URL.Scheme != via[0].URL.Scheme {
		return http.ErrUseLastResponse
	}
	return nil
}

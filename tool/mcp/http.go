package mcp

import (
	"errors"
	"fmt"
	"net"
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
			return nil, unsent{err}
		}
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return nil, unsent{dial}
	}
	if err == nil && (resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusTooManyRequests) {
		_ = resp.Body.Close()
		return nil, unsent{fmt.Errorf("it refused the request: %s", resp.Status)}
	}
	return resp, err
}

// unsent is the error of a request that the server did not take. The SDK says that of each
// error of a request, also of those that broke off behind the server's back.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

// sameHost keeps the token from other hosts.
func sameHost(r *http.Request, via []*http.Request) error {
	if len(via) > 5 || r.URL.Host != via[0].URL.Host || r.URL.Scheme != via[0].URL.Scheme {
		return http.ErrUseLastResponse
	}
	return nil
}

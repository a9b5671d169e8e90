package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rathcluster/rath/internal/models/listfile"
)

// overHTTP is the transport of a server with a URL; ctx bounds its lifetime. It reads the
// token for each request, so that the token can change.
func overHTTP(ctx context.Context, s *Server, env func(string) string, g *gate) sdk.Transport {
	return &sdk.StreamableClientTransport{
		Endpoint: s.URL, HTTPClient: &http.Client{Transport: bearer{s, env, ctx, g}, CheckRedirect: sameHost}, MaxRetries: -1, DisableStandaloneSSE: true, MaxEventSize: maxLine,
	}
}

// answerTime bounds requests other than calls of tools: a response to the server, a token.
const answerTime = 10 * time.Second

// bearer adds the token of a server to requests for it.
type bearer struct {
	s    *Server
	env  func(string) string
	life context.Context // of the connection
	g    *gate
}

// RoundTrip implements http.RoundTripper. It replaces an OAuth token once by a new one if
// the server rejects it.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Context().Done() == nil { // an answer to a request of the server, for which the SDK waits for ever
		defer b.g.answered()
		ctx, cancel := context.WithTimeout(b.life, answerTime)
		defer cancel()
		r = r.WithContext(ctx)
	}
	token, err := b.token("")
	if err != nil {
		return nil, unsent{err}
	}
	resp, err := b.send(r, token)
	if err == nil && resp.StatusCode == http.StatusUnauthorized && b.s.oauth != nil && r.GetBody != nil {
		_ = resp.Body.Close()
		if token, err = b.token(token); err != nil {
			return nil, unsent{err}
		}
		r = r.Clone(r.Context())
		if r.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
		resp, err = b.send(r, token)
	}
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return nil, unsent{dial}
	}
	if err == nil && (resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusTooManyRequests) {
		_ = resp.Body.Close()
		return nil, unsent{fmt.Errorf("it rejected the request: %s", resp.Status)}
	}
	return resp, err
}

// token returns a token, a different one from refused if possible; "" if none is needed.
func (b bearer) token(refused string) (string, error) {
	switch {
	case b.s.Token != "":
		return listfile.Secret(b.env, b.s.file, b.s.Token, "token")
	case b.s.oauth != nil:
		return b.s.oauth.token(b.s, b.env, refused)
	}
	return "", nil
}

func (b bearer) send(r *http.Request, token string) (*http.Response, error) {
	if token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := whole{}.RoundTrip(r)
	switch {
	case err != nil:
		return nil, err
	case streams(resp):
		resp.Body = newEvents(resp.Body, b.g, r)
	case resp.StatusCode == http.StatusOK:
		resp.Body = &answerBody{ReadCloser: resp.Body, method: requested(r).Method}
	case r.Header.Get("Mcp-Session-Id") != "" && forgot(resp):
		_ = resp.Body.Close()
		return nil, errForgot
	}
	return resp, nil
}

// errForgot is the error of a request that the server rejected because it has lost the
// session, for example after a restart.
var errForgot = errors.New("it has forgotten the session")

// forgot reports whether a server rejected a request because its session is lost: with 404,
// as the protocol requires, or with 400 and a matching text.
func forgot(resp *http.Response) bool {
	if resp.StatusCode != http.StatusBadRequest {
		return resp.StatusCode == http.StatusNotFound
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(data), resp.Body), resp.Body}
	return err == nil && bytes.Contains(bytes.ToLower(data), []byte("session"))
}

// maxRefusal bounds the text of a refusal that is searched, in bytes.
const maxRefusal = 64 << 10

// streams reports whether the body of a response is a stream of events.
func streams(resp *http.Response) bool {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return kind == "text/event-stream" && resp.StatusCode >= 200 && resp.StatusCode <= 299
}

// whole bounds the bodies that are no streams.
type whole struct{}

// RoundTrip implements http.RoundTripper.
func (whole) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && !streams(resp) {
		resp.Body = &bounded{resp.Body, maxLine}
	}
	return resp, err
}

// bounded is a body that fails when it has more than left bytes.
type bounded struct {
	io.ReadCloser
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	if b.left -= n; b.left < 0 {
		b.left = 0
		return 0, errLong
	}
	return n, err
}

// unsent is the error of a request that did not reach the server. The SDK reports every
// failed request as unsent, including those that failed after the server received them.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

// sameHost keeps the token from other hosts.
func sameHost(r *http.Request, via []*http.Request) error {
	if len(via) > 5 || r.URL.Host != via[0].URL.Host || r.URL.Scheme != via[0].URL.Scheme {
		return http.ErrUseLastResponse
	}
	return nil
}

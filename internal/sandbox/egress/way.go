package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// refusedHeader marks a response of the proxy itself.
const refusedHeader = "X-Rath-Refused"

// way sends requests of this process through a proxy, on connections like those of
// commands.
type way struct{ t *http.Transport }

// Transport sends requests of this process as the proxy sends requests of commands: to the
// same hosts, with the same secrets, and as evidence of the call. A response of the proxy
// itself, such as for a host that is not on the list, is an error. Connections are not
// reused.
func (p *Proxy) Transport() http.RoundTripper {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.Authority())
	return way{&http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy"}),
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			p.Serve(theirs)
			return ours, nil
		},
		OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, r *http.Response) error {
			if r.StatusCode != http.StatusOK {
				return said(r)
			}
			return nil
		},
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: connectTimeout,
		DisableKeepAlives: true, MaxResponseHeaderBytes: 256 << 10,
	}}
}

// RoundTrip implements http.RoundTripper.
func (w way) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.t.RoundTrip(r)
	if err != nil || resp.Header.Get(refusedHeader) == "" {
		return resp, err
	}
	defer resp.Body.Close()
	return nil, said(resp)
}

// said returns the error in a response of the proxy itself.
func said(r *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(r.Body, 4<<10)) // falls back to the status
	return &refusedError{cmp.Or(strings.TrimPrefix(strings.TrimSpace(string(text)), "rath: "), r.Status)}
}

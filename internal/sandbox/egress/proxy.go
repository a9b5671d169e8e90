package egress

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
)

const (
	// answerTimeout is how long a server may take to begin an answer.
	answerTimeout = 2 * time.Minute
	// maxHeader bounds the header of a request and of an answer, in bytes.
	maxHeader = 256 << 10
	// maxConnections bounds the concurrent connections of a sandbox.
	maxConnections = 256
)

// Proxy is the way out of one sandbox. Its methods may be called concurrently.
type Proxy struct {
	o         Options
	tenant    session.Tenant
	network   sandbox.Network
	authority *authority
	transport *http.Transport
	server    *http.Server
	conns     *connections
	done      chan struct{} // closed when the server has ended
	requests  requests
}

// New returns the proxy of a sandbox of a tenant's run, for a list of hosts. The caller
// closes it.
func New(o *Options, t session.Tenant, n sandbox.Network) (*Proxy, error) {
	if len(n.Hosts()) == 0 {
		return nil, fmt.Errorf("egress: the network %q lists no hosts", n)
	}
	p := &Proxy{o: *o, tenant: t, network: n, done: make(chan struct{})}
	var err error
	if p.authority, err = newAuthority(time.Now()); err != nil {
		return nil, fmt.Errorf("egress: make an authority: %w", err)
	}
	p.transport = &http.Transport{
		DialContext: p.o.Connect, TLSClientConfig: &tls.Config{RootCAs: o.Roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: connectTimeout, ResponseHeaderTimeout: answerTimeout, ExpectContinueTimeout: time.Second,
		IdleConnTimeout: 30 * time.Second, MaxIdleConnsPerHost: 8, DisableCompression: true, ForceAttemptHTTP2: true,
		MaxResponseHeaderBytes: maxHeader,
	}
	quiet := log.New(io.Discard, "", 0) // the answer has the error
	p.server = &http.Server{Handler: p, ErrorLog: quiet, ReadHeaderTimeout: answerTimeout, IdleTimeout: answerTimeout, MaxHeaderBytes: maxHeader}
	p.conns = &connections{accept: make(chan net.Conn), closed: make(chan struct{}), slots: make(chan struct{}, maxConnections)}
	go func() {
		defer close(p.done)
		_ = p.server.Serve(p.conns) // it returns after Close
	}()
	return p, nil
}

// Authority returns the certificate, in PEM, that programs in the sandbox must trust.
func (p *Proxy) Authority() []byte { return p.authority.pem }

// Serve accepts a connection of a command. It returns before the connection ends. It closes
// a connection above the limit.
func (p *Proxy) Serve(c net.Conn) {
	select {
	case p.conns.slots <- struct{}{}:
	default:
		c.Close()
		return
	}
	counted := &connection{Conn: c, release: func() { <-p.conns.slots }}
	p.conns.bring(counted)
}

// Take returns the requests since the last Take: the first ones one by one, and the number
// of the others.
func (p *Proxy) Take() (list []journal.NetworkRequest, more int) { return p.requests.take() }

// Close ends all connections.
func (p *Proxy) Close() error {
	err := p.server.Close()
	p.conns.end()
	p.transport.CloseIdleConnections()
	<-p.done
	return err
}

// ServeHTTP answers a command's request, inside a tunnel or for a new one.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.TLS != nil && r.Method != http.MethodConnect:
		r.URL.Scheme, r.URL.Host = "https", r.Host
	case r.TLS == nil && r.Method == http.MethodConnect:
		p.tunnel(w, r)
		return
	case !r.URL.IsAbs():
		http.Error(w, "rath: this is a proxy: set HTTP_PROXY and HTTPS_PROXY to its address", http.StatusBadRequest)
		return
	}
	give(w, p.answer(r))
}

// tunnel terminates the TLS of a tunnel to a host of the list. Its requests are served like
// the requests of other connections.
func (p *Proxy) tunnel(w http.ResponseWriter, r *http.Request) {
	host, port, err := net.SplitHostPort(r.Host)
	if err == nil && port != "443" {
		err = fmt.Errorf("port %s: tunnels lead to port 443 alone", port)
	}
	if err == nil {
		err = p.allows(host)
	}
	if err != nil {
		e, _ := p.requests.begin(r.Host, http.MethodConnect, "")
		give(w, p.refuse(r, e, http.StatusForbidden, err))
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		give(w, p.refuse(r, new(entry), http.StatusHTTPVersionNotSupported, err))
		return
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		conn.Close()
		return
	}
	p.conns.bring(tls.Server(ahead{conn, buffered.Reader}, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.authority.of(host) },
	}))
}

// give writes an answer, each part as soon as it arrives.
func give(w http.ResponseWriter, resp *http.Response) {
	defer resp.Body.Close()
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	c := http.NewResponseController(w)
	var err error
	if resp.ContentLength < 0 {
		err = c.Flush() // the body may begin long after the header
	}
	for buf := make([]byte, 32<<10); err == nil; {
		var n int
		n, err = resp.Body.Read(buf)
		if _, failed := w.Write(buf[:n]); failed != nil || c.Flush() != nil {
			panic(http.ErrAbortHandler) // the command has disconnected
		}
	}
	if !errors.Is(err, io.EOF) {
		panic(http.ErrAbortHandler) // so that the command does not mistake it for the whole answer
	}
	for name, values := range resp.Trailer {
		w.Header()[http.TrailerPrefix+name] = values
	}
}

// allows returns why a host may not be reached.
func (p *Proxy) allows(host string) error {
	if p.network.Reaches(host) {
		return nil
	}
	return &refusedError{fmt.Sprintf("%q is not among the hosts that this run may reach", host)}
}

// answer carries out a request.
func (p *Proxy) answer(r *http.Request) *http.Response {
	e, ok := p.requests.begin(r.URL.Host, r.Method, r.URL.RequestURI())
	if !ok {
		return p.refuse(r, e, http.StatusTooManyRequests, fmt.Errorf("a call makes at most %d requests", MaxRequests))
	}
	host := strings.TrimSuffix(strings.ToLower(r.URL.Hostname()), ".")
	if err := p.allows(host); err != nil {
		return p.refuse(r, e, http.StatusForbidden, err)
	}
	if err := p.carries(r); err != nil {
		return p.refuse(r, e, http.StatusForbidden, err)
	}
	secrets := of(p.o.Secrets, p.tenant, host)
	if len(secrets) > 0 && r.URL.Scheme != "https" {
		return p.refuse(r, e, http.StatusForbidden, fmt.Errorf("a secret goes to %s, so it is reached by https alone", host))
	}
	out := r.Clone(r.Context())
	// Only this name was checked, so the request names no other host.
	out.RequestURI, out.Host, out.URL.Host = "", host, host
	passOn(out.Header)
	if r.Body != nil && r.Body != http.NoBody {
		out.Body = meter{r.Body, &e.sent}
	}
	var hidden []string
	for _, s := range secrets {
		out.Header.Set(s.Header, s.Value)
		hidden = append(hidden, s.hidden...)
	}
	slices.SortFunc(hidden, func(a, b string) int { return len(b) - len(a) }) // one may contain another
	if len(hidden) > 0 {
		// So that the secrets can be found in the answer.
		out.Header.Set("Accept-Encoding", "identity")
		for _, h := range []string{"Range", "If-Range"} {
			out.Header.Del(h)
		}
	}
	if p.network.Kind() == sandbox.NetworkReadOnly {
		for _, h := range []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"} {
			out.Header.Del(h)
		}
	}
	resp, err := p.transport.RoundTrip(out)
	if refused, ok := errors.AsType[*refusedError](err); ok {
		return p.refuse(r, e, http.StatusForbidden, refused)
	}
	if err != nil {
		return p.refuse(r, e, http.StatusBadGateway, fmt.Errorf("%s cannot be reached: %s", host, hideIn(reason(err), hidden)))
	}
	p.requests.ends(e, resp.StatusCode, "")
	passOn(resp.Header)
	resp.Header.Del(refusedHeader) // the proxy's own
	resp.Body = meter{resp.Body, &e.received}
	if len(hidden) > 0 {
		// The transport sets a trailer on its own response, so return a copy.
		concealed := *resp
		p.conceal(&concealed, hidden)
		return &concealed
	}
	return resp
}

// ofConnection are the fields for one connection only, in addition to the fields named by
// the field Connection (RFC 9110, section 7.6.1).
var ofConnection = []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Upgrade"}

// passOn removes the fields that a proxy must not pass on.
func passOn(h http.Header) {
	for _, named := range h["Connection"] {
		for name := range strings.SplitSeq(named, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range ofConnection {
		h.Del(name)
	}
}

// carries returns why a request must not be sent as it is.
func (p *Proxy) carries(r *http.Request) error {
	switch {
	case r.URL.Scheme != "http" && r.URL.Scheme != "https":
		return &refusedError{fmt.Sprintf("%q is no scheme that is carried: http and https are", r.URL.Scheme)}
	case r.URL.Port() != "" && r.URL.Port() != map[string]string{"http": "80", "https": "443"}[r.URL.Scheme]:
		return &refusedError{fmt.Sprintf("port %s is not the one of %s: only port 80 of http and port 443 of https are reached", r.URL.Port(), r.URL.Scheme)}
	case r.Header.Get("Upgrade") != "":
		return &refusedError{"connections are not carried on in another protocol, such as WebSocket"}
	case p.network.Kind() == sandbox.NetworkReadOnly && r.Method != http.MethodGet && r.Method != http.MethodHead:
		return &refusedError{fmt.Sprintf("%s: this run may read alone, by GET and HEAD", r.Method)}
	case p.network.Kind() == sandbox.NetworkReadOnly && r.ContentLength != 0:
		return &refusedError{"this run may read alone, and a request that reads has no body"}
	}
	return nil
}

// conceal masks secrets in an answer.
func (p *Proxy) conceal(resp *http.Response, hidden []string) {
	for name, values := range resp.Header {
		if lower := strings.ToLower(name); slices.ContainsFunc(hidden, func(s string) bool { return strings.Contains(lower, strings.ToLower(s)) }) {
			delete(resp.Header, name)
			continue
		}
		for i, v := range values {
			resp.Header[name][i] = hideIn(v, hidden)
		}
	}
	// Drop the reason phrase and the trailer.
	resp.Status, resp.Trailer = "", nil
	resp.Header.Del("Trailer")
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		// The request did not accept an encoding, and encoded data cannot be searched.
		resp.Body.Close()
		resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader("")), 0
		resp.Header.Del("Content-Encoding")
		resp.Header.Set("Content-Length", "0")
		resp.StatusCode, resp.Status = http.StatusBadGateway, ""
		return
	}
	resp.Body = newMask(resp.Body, hidden)
}

// refuse answers a request with an error of the proxy itself.
func (p *Proxy) refuse(r *http.Request, e *entry, status int, why error) *http.Response {
	p.requests.ends(e, status, why.Error())
	text := "rath: " + why.Error() + "\n"
	return &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Request: r, Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)),
		Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}, refusedHeader: {http.StatusText(status)}},
	}
}

// reason returns the text of an error without details of the node: addresses and name
// servers.
func reason(err error) string {
	if d, ok := errors.AsType[*net.DNSError](err); ok {
		return d.Err
	}
	if o, ok := errors.AsType[*net.OpError](err); ok {
		err = o.Err
	}
	return err.Error()
}

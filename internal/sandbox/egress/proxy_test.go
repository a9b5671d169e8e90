package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf16"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/sandboxtest"
)

// world is a network of two servers on loopback, which answer for all names.
type world struct {
	plain, secure *httptest.Server
	seen          atomic.Pointer[http.Request] // by the servers, the last one
	addrs         map[string][]netip.Addr      // of names; others are at 127.0.0.1
	lookup        func(string) []netip.Addr    // replaces addrs, unless it is nil
	dialed        atomic.Pointer[string]
	ended         chan struct{} // receives a value for each endless answer whose reader has disconnected
}

const secret = "s3cr3t-token-of-the-node"

func newWorld(t *testing.T) *world {
	w := &world{addrs: map[string][]netip.Addr{}, ended: make(chan struct{}, 2)}
	h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.seen.Store(r.Clone(context.Background()))
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/away":
			http.Redirect(rw, r, "https://elsewhere.org/", http.StatusFound)
		case "/echo":
			rw.Header().Set("X-Echo", r.Header.Get("Authorization"))
			for _, piece := range []string{"before ", r.Header.Get("Authorization")[:9], r.Header.Get("Authorization")[9:], " after"} {
				io.WriteString(rw, piece)
				rw.(http.Flusher).Flush()
			}
		case "/trailer":
			rw.Header().Set("Trailer", "X-Late, X-Other")
			rw.Header().Set("X-"+secret, "1")
			io.WriteString(rw, "body")
			rw.Header().Set("X-Late", r.Header.Get("Authorization"))
			rw.Header().Set(http.TrailerPrefix+"X-Later", r.Header.Get("Authorization"))
		case "/status":
			c, buf, _ := rw.(http.Hijacker).Hijack()
			fmt.Fprintf(buf, "HTTP/1.1 200 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", r.Header.Get("Authorization"))
			buf.Flush()
			c.Close()
		case "/cut":
			if r.Header.Get("Range") == "" {
				io.WriteString(rw, "all")
				return
			}
			io.WriteString(rw, r.Header.Get("Authorization")[:12])
		case "/endless":
			rw.(http.Flusher).Flush()
			<-r.Context().Done()
			w.ended <- struct{}{}
		case "/connection":
			rw.Header().Set("Keep-Alive", "timeout=5")
			rw.Header().Set("Connection", "X-Hop, keep-alive")
			rw.Header().Set("X-Hop", "1")
			rw.Header().Set("X-End", "2")
		case "/packed":
			rw.Header().Set("Content-Encoding", "gzip")
			io.WriteString(rw, r.Header.Get("Authorization"))
		default:
			fmt.Fprintf(rw, "%s %s %s", r.Method, r.Host, body)
		}
	})
	w.plain, w.secure = httptest.NewServer(h), httptest.NewTLSServer(h)
	t.Cleanup(w.plain.Close)
	t.Cleanup(w.secure.Close)
	return w
}

// proxy returns a proxy in this world, and a client that uses it for all requests.
func (w *world) proxy(t testing.TB, n sandbox.Network, secrets ...Secret) (*Proxy, *http.Client) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(w.secure.Certificate())
	p, err := New(&Options{
		Private: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Roots: roots, Secrets: secrets,
		Lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
			if w.lookup != nil {
				return w.lookup(host), nil
			}
			if a, ok := w.addrs[host]; ok {
				return a, nil
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		},
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			w.dialed.Store(&addr)
			to := w.plain.Listener.Addr().String()
			if strings.HasSuffix(addr, ":443") {
				to = w.secure.Listener.Addr().String()
			}
			return (&net.Dialer{}).DialContext(ctx, network, to)
		},
	}, "acme", n)
	must.Do(t, err)
	// The certificates of the servers are for example.com.
	p.transport.TLSClientConfig.ServerName = "example.com"
	trust := x509.NewCertPool()
	trust.AppendCertsFromPEM(p.Authority())
	to, _ := url.Parse("http://127.0.0.1:3128")
	tr := &http.Transport{
		Proxy: http.ProxyURL(to), TLSClientConfig: &tls.Config{RootCAs: trust},
		DialContext: func(context.Context, string, string) (net.Conn, error) { return dialed(p), nil },
	}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		must.Report(t, p.Close())
	})
	return p, &http.Client{Transport: tr}
}

// dialed returns the sandbox's end of a connection that the proxy serves.
func dialed(p *Proxy) net.Conn {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		panic(err)
	}
	served, err := l.Accept()
	if err != nil {
		panic(err)
	}
	p.Serve(served)
	return c
}

func get(t *testing.T, c *http.Client, method, to string, body io.Reader, header ...string) (int, string, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, to, body)
	must.Do(t, err)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(r)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	must.Do(t, err)
	all := resp.Header.Clone()
	all.Set("Status", resp.Status)
	maps.Copy(all, resp.Trailer)
	return resp.StatusCode, string(data), all
}

// TestList: the requests that a list allows and rejects, and their records.
func TestList(t *testing.T) {
	w := newWorld(t)
	for name, a := range map[string]string{
		"loop.example.org": "127.9.9.9", "private.example.org": "10.1.2.3", "meta.example.org": "169.254.169.254", "six.example.org": "::1",
		"mapped.example.org": "::ffff:10.0.0.1", "nat.example.org": "64:ff9b::a00:1", "ula.example.org": "fd00:ec2::254", "zero.example.org": "0.0.0.0",
		"carrier.example.org": "100.100.100.200", "old.example.org": "fec0::1", "multi.example.org": "224.0.0.1", "sixto4.example.org": "2002:a00:1::",
	} {
		w.addrs[name] = []netip.Addr{netip.MustParseAddr(a)}
	}
	w.addrs["mixed.example.org"] = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.168.0.1")}
	const list = "list:*.example.org,files.net"
	for _, tt := range []struct {
		name, network, method, to, body string
		header                          []string
		status                          int
		says                            string
	}{
		{"a host of the list", list, "GET", "https://files.net/a?b=c", "", nil, 200, "GET files.net "},
		{"without TLS", list, "GET", "http://files.net/", "", nil, 200, "GET files.net "},
		{"a host of a pattern", list, "POST", "https://a.b.example.org/", "hello", nil, 200, "POST a.b.example.org hello"},
		{"upper case and a dot", list, "GET", "http://FILES.net./", "", nil, 200, "GET files.net "},
		{"the pattern itself is none", list, "GET", "http://example.org/", "", nil, 403, `rath: "example.org" is not among the hosts that this run may reach`},
		{"another host", list, "GET", "http://evil.net/", "", nil, 403, "not among the hosts"},
		{"a tunnel to another host", list, "GET", "https://evil.net/", "", nil, 0, "Forbidden"},
		{"an address", list, "GET", "http://127.0.0.1/", "", nil, 403, "not among the hosts"},
		{"a tunnel to an address", list, "GET", "https://169.254.169.254/latest/", "", nil, 0, "Forbidden"},
		{"another port", list, "GET", "http://files.net:8080/", "", nil, 403, "port 8080"},
		{"a tunnel to another port", list, "GET", "https://files.net:22/", "", nil, 0, "Forbidden"},
		{"a redirect to another host", list, "GET", "https://files.net/away", "", nil, 0, "Forbidden"},
		{"a private address", list, "GET", "http://private.example.org/", "", nil, 403, "private.example.org is at 10.1.2.3, which is no address of the Internet"},
		{"metadata of a cloud", list, "GET", "https://meta.example.org/", "", nil, 403, "169.254.169.254"},
		{"loopback in IPv6", list, "GET", "http://six.example.org/", "", nil, 403, "no address of the Internet"},
		{"a mapped address", list, "GET", "http://mapped.example.org/", "", nil, 403, "no address of the Internet"},
		{"an address behind NAT64", list, "GET", "http://nat.example.org/", "", nil, 403, "no address of the Internet"},
		{"an address behind 6to4", list, "GET", "http://sixto4.example.org/", "", nil, 403, "no address of the Internet"},
		{"a unique local address", list, "GET", "http://ula.example.org/", "", nil, 403, "no address of the Internet"},
		{"no address at all", list, "GET", "http://zero.example.org/", "", nil, 403, "no address of the Internet"},
		{"a carrier's address", list, "GET", "http://carrier.example.org/", "", nil, 403, "no address of the Internet"},
		{"a site local address", list, "GET", "http://old.example.org/", "", nil, 403, "no address of the Internet"},
		{"many at once", list, "GET", "http://multi.example.org/", "", nil, 403, "no address of the Internet"},
		{"one private address of two", list, "GET", "http://mixed.example.org/", "", nil, 403, "192.168.0.1"},
		{"a range that the node allows", list, "GET", "http://loop.example.org/", "", nil, 200, "GET loop.example.org"},
		{"WebSocket", list, "GET", "https://files.net/", "", []string{"Connection", "Upgrade", "Upgrade", "websocket"}, 403, "WebSocket"},
		{"a host behind another", list, "GET", "https://files.net/", "", []string{"X-Forwarded-Host", "evil.net"}, 200, "GET files.net"},
		{"reading alone", "read_only:files.net", "HEAD", "https://files.net/", "", nil, 200, ""},
		{"writing where reading is allowed", "read_only:files.net", "POST", "https://files.net/", "x", nil, 403, "this run may read alone"},
		{"writing by GET", "read_only:files.net", "GET", "http://files.net/", "x", nil, 403, "has no body"},
		{"a method of its own", "read_only:files.net", "BREW", "https://files.net/", "", nil, 403, "this run may read alone"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, c := w.proxy(t, sandbox.Network(tt.network))
			var body io.Reader
			if tt.body != "" {
				body = strings.NewReader(tt.body)
			}
			status, says, _ := get(t, c, tt.method, tt.to, body, tt.header...)
			if tt.status == 403 || tt.status == 0 {
				// In a tunnel it is the answer to CONNECT, which a client reports as an
				// error.
				sandboxtest.End(t, "reach by the proxy: "+tt.name, map[int]string{403: "403", 0: "Forbidden"}[status])
			}
			if status != tt.status || !strings.Contains(says, tt.says) {
				t.Errorf("answered %d %q, want %d %q", status, says, tt.status, tt.says)
			}
			list, more := p.Take()
			if len(list) == 0 || more != 0 {
				t.Fatalf("told %+v and %d more", list, more)
			}
			last := list[len(list)-1]
			if refused := tt.status == 403 || tt.status == 0; (last.Refused != "") != refused {
				t.Errorf("told %+v", last)
			}
		})
	}
}

// TestRebinding: a name that resolves to another address each time is dialed at the address
// that was checked.
func TestRebinding(t *testing.T) {
	w := newWorld(t)
	var asked atomic.Int32
	w.lookup = func(string) []netip.Addr {
		return []netip.Addr{netip.MustParseAddr([]string{"127.0.0.1", "169.254.169.254"}[asked.Add(1)%2])}
	}
	_, c := w.proxy(t, "list:files.net")
	for range 6 {
		before := asked.Load()
		w.dialed.Store(nil)
		status, says, _ := get(t, c, "GET", "http://files.net/", nil, "Connection", "close")
		if n := asked.Load() - before; n != 1 {
			t.Errorf("the name was asked for %d times", n)
		}
		if to := w.dialed.Load(); to != nil && !strings.HasPrefix(*to, "127.0.0.1:") {
			t.Errorf("%s was dialed", *to)
		}
		if private := asked.Load()%2 == 1; private != (status == 403) {
			t.Errorf("answered %d %q", status, says)
		}
	}
	sandboxtest.End(t, "reach by the proxy: a name whose address changes after the check", "the address that was checked is dialed")
}

// TestRequests: the record of a request, and the numbers of recorded and of all requests.
func TestRequests(t *testing.T) {
	w := newWorld(t)
	p, c := w.proxy(t, "list:files.net")
	get(t, c, "POST", "https://files.net/put?a=b", strings.NewReader("12345"))
	list, more := p.Take()
	want := journal.NetworkRequest{Host: "files.net", Method: "POST", Path: "/put?a=b", Status: 200, Sent: 5, Received: int64(len("POST files.net 12345"))}
	if len(list) != 1 || list[0] != want || more != 0 {
		t.Errorf("told %+v, want %+v", list, want)
	}
	for i := range MaxRequests + 1 {
		status, says, _ := get(t, c, "GET", "http://files.net/", nil)
		if want := map[bool]int{true: 200, false: 429}[i < MaxRequests]; status != want {
			t.Fatalf("request %d was answered %d %q, want %d", i, status, says, want)
		}
	}
	if list, more = p.Take(); len(list) != maxKept || more != MaxRequests+1-maxKept {
		t.Errorf("told %d and %d more", len(list), more)
	}
	if status, _, _ := get(t, c, "GET", "http://files.net/", nil); status != 200 {
		t.Errorf("the next call was answered %d", status)
	}
}

// TestSecrets: the server gets the secret, and no answer contains it.
func TestSecrets(t *testing.T) {
	w := newWorld(t)
	secrets := must.Get(ParseSecrets("acme@files.net authorization: Bearer ${TOKEN}\nother@files.net X-Other: ${TOKEN}", func(string) string { return secret }))(t)
	p, c := w.proxy(t, "list:files.net,open.net", secrets...)
	for _, path := range []string{"/", "/echo", "/packed", "/trailer", "/status", "/cut"} {
		status, says, header := get(t, c, "GET", "https://files.net"+path, nil, "Authorization", "mine", "Accept-Encoding", "br", "Range", "bytes=0-11")
		seen := w.seen.Load()
		if seen.Header.Get("Authorization") != "Bearer "+secret || seen.Header.Get("X-Other") != "" {
			t.Errorf("%s: the server got %q", path, seen.Header)
		}
		if all := says + fmt.Sprint(header); strings.Contains(all, secret) || strings.Contains(all, secret[2:]) || strings.Contains(strings.ToLower(all), secret[:5]) {
			t.Errorf("%s: the secret came back: %d %s", path, status, all)
		}
		if path == "/echo" && says != "before Bearer "+strings.Repeat("*", len(secret))+" after" {
			t.Errorf("the answer is %q", says)
		}
	}
	if status, says, _ := get(t, c, "GET", "http://files.net/", nil); status != 403 || !strings.Contains(says, "https") {
		t.Errorf("a secret without TLS was answered %d %q", status, says)
	}
	if get(t, c, "GET", "https://open.net/", nil); w.seen.Load().Header.Get("Authorization") != "" {
		t.Error("another host got the secret")
	}
	if list, _ := p.Take(); strings.Contains(fmt.Sprint(list), secret) {
		t.Errorf("the secret is told: %v", list)
	}
}

// TestFieldsOfConnection: a message's fields for its connection are not passed on, neither
// to the server nor to the command.
func TestFieldsOfConnection(t *testing.T) {
	w := newWorld(t)
	_, c := w.proxy(t, "list:files.net")
	for _, scheme := range []string{"http", "https"} {
		_, _, h := get(t, c, "GET", scheme+"://files.net/connection", nil, "Connection", "X-Mine", "X-Mine", "1", "Keep-Alive", "timeout=9", "X-Whole", "2")
		if got := h.Get("Keep-Alive") + h.Get("X-Hop"); got != "" || h.Get("X-End") != "2" {
			t.Errorf("%s: the command is answered with %v", scheme, h)
		}
		if sent := w.seen.Load().Header; sent.Get("X-Mine")+sent.Get("Keep-Alive") != "" || sent.Get("X-Whole") != "2" {
			t.Errorf("%s: the server is asked with %v", scheme, sent)
		}
	}
}

// TestParseSecrets rejects invalid secrets without repeating them.
func TestParseSecrets(t *testing.T) {
	for _, line := range []string{
		"files.net", "files.net Authorization", "files.net Authorization: Bearer literal", "files.net Authorization: ${SHORT}", "files.net Authorization: ${NONE}",
		"*.files.net Authorization: ${TOKEN}", "https://files.net Authorization: ${TOKEN}", "a b@files.net Authorization: ${TOKEN}", "files.net Auth orization: ${TOKEN}",
		"files.net Authorization: ${LINES}",
	} {
		_, err := ParseSecrets(line, func(name string) string {
			return map[string]string{"TOKEN": secret, "SHORT": "abc", "LINES": "one\r\ntwo: three"}[name]
		})
		if err == nil || strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "literal") {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// TestHostileBytes: bytes that are not HTTP end the connection and have no other effect.
func TestHostileBytes(t *testing.T) {
	w := newWorld(t)
	p, c := w.proxy(t, "list:files.net")
	for _, text := range []string{
		"", "\x00\x01\x02", "GET / HTTP/1.1\r\nHost: files.net\r\n\r\n", "CONNECT files.net:443 HTTP/1.1\r\n\r\n\x16\x03\x01garbage",
		"CONNECT files.net:443 HTTP/1.1\r\nHost: files.net\r\n\r\nGET http://evil.net/ HTTP/1.1\r\nHost: files.net\r\n\r\n",
		"CONNECT files.net:443 HTTP/1.1\r\nHost: files.net\r\n\r\nGET / HTTP/1.1\r\nHost: evil.net\r\n\r\n",
		"CONNECT  HTTP/1.1\r\n\r\n", "GET ftp://files.net/ HTTP/1.1\r\nHost: files.net\r\n\r\n", "GET http://files.net@evil.net/ HTTP/1.1\r\nHost: files.net\r\n\r\n",
	} {
		w.seen.Store(nil)
		conn := dialed(p)
		io.WriteString(conn, text)
		conn.(*net.TCPConn).CloseWrite()
		if _, err := io.Copy(io.Discard, bufio.NewReader(conn)); err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%q: %v", text, err)
		}
		conn.Close()
		if seen := w.seen.Load(); seen != nil && seen.Host != "files.net" {
			t.Errorf("%q reached %s", text, seen.Host)
		}
	}
	if status, _, _ := get(t, c, "GET", "https://files.net/", nil); status != 200 {
		t.Errorf("after that the proxy answers %d", status)
	}
	sandboxtest.End(t, "reach by the proxy: another host behind CONNECT, bytes that are no HTTP", "the connection ends, no other host is reached")
}

// FuzzMask: a secret never passes, however the bytes are cut; the other bytes pass.
func FuzzMask(f *testing.F) {
	f.Add([]byte("a s3cr3t-token b"), "s3cr3t-token", 3)
	f.Add([]byte("aaaaaaaaaaaaaaaaaaaa"), "aaaaaaaa", 1)
	f.Fuzz(func(t *testing.T, data []byte, hidden string, step int) {
		if len(hidden) < MinSecret || len(hidden) > 64 || len(data) > 4096 {
			return // ParseSecrets rejects short ones
		}
		step = 1 + int(uint(step)%64)
		m := newMask(io.NopCloser(&chopped{data, step}), []string{hidden})
		var got bytes.Buffer
		must.Get(io.CopyBuffer(&got, struct{ io.Reader }{m}, make([]byte, step)))(t)
		want := bytes.Clone(data)
		hide(want, []byte(hidden))
		hideBeginning(want, []byte(hidden))
		if !bytes.Equal(got.Bytes(), want) || strings.Trim(hidden, "*") != "" && bytes.Contains(got.Bytes(), []byte(hidden)) {
			t.Errorf("%q comes through as %q, want %q", data, got.Bytes(), want)
		}
	})
}

// TestMaskEscapes: a server may write any character of a secret as an escape of JSON.
func TestMaskEscapes(t *testing.T) {
	const hidden = `s3cr3t/"to\ken-é🔑`
	var units strings.Builder
	for _, u := range utf16.Encode([]rune(hidden)) {
		fmt.Fprintf(&units, `\u%04X`, u)
	}
	for _, spelling := range []string{
		hidden, `s3cr3t\/\"to\\ken-é🔑`, `s3cr3t/\"to\\ken-\u00e9\ud83d\uDD11`, `\u00733cr3t/\u0022to\u005Cken-é🔑`, units.String(),
	} {
		data := `{"a": "x\/y\u0073", "token": "` + spelling + `", "b": "s3cr3"}`
		want := strings.Replace(data, spelling, strings.Repeat("*", len(spelling)), 1)
		for step := 1; step < 20; step++ {
			got, err := io.ReadAll(newMask(io.NopCloser(&chopped{[]byte(data), step}), []string{hidden}))
			if err != nil || string(got) != want {
				t.Errorf("in pieces of %d: %q, %v; want %q", step, got, err, want)
			}
		}
	}
}

// TestMaskHoldsNothingBack: an event of a stream passes as soon as it arrives.
func TestMaskHoldsNothingBack(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	m := newMask(r, []string{"s3cr3t-token"})
	for _, event := range []string{"data: one\n\n", "data: two\n\n"} {
		go io.WriteString(w, event)
		got := make([]byte, 100)
		if n, err := m.Read(got); err != nil || string(got[:n]) != event {
			t.Errorf("%q, %v; want %q", got[:n], err, event)
		}
	}
}

// chopped reads a few bytes at a time.
type chopped struct {
	data []byte
	step int
}

func (c *chopped) Read(p []byte) (int, error) {
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.data[:min(c.step, len(c.data))])
	c.data = c.data[n:]
	return n, nil
}

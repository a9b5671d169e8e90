package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// proxyBar is the maximum ratio of a request's time through the proxy to its time without.
const proxyBar = 2.0

// BenchmarkProxy has one client fetch 64 KB over TLS repeatedly, directly and through the
// proxy, which terminates TLS and opens TLS to the server. It fails if the proxy exceeds
// its bar.
func BenchmarkProxy(b *testing.B) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<12)
	w := &world{}
	h := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = rw.Write(body)
	})
	w.plain, w.secure = httptest.NewServer(h), httptest.NewTLSServer(h)
	defer w.plain.Close()
	defer w.secure.Close()
	p, through := w.proxy(b, "list:example.com")
	roots := x509.NewCertPool()
	roots.AddCert(w.secure.Certificate())
	direct := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com"},
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return net.Dial("tcp", w.secure.Listener.Addr().String())
		},
	}}
	fetch := func(c *http.Client) time.Duration {
		began := time.Now()
		resp, err := c.Get("https://example.com/")
		must.Do(b, err)
		n, err := io.Copy(io.Discard, resp.Body)
		if err != nil || n != int64(len(body)) {
			b.Fatalf("%d bytes came, %v", n, err)
		}
		resp.Body.Close()
		return time.Since(began)
	}
	fetch(direct)
	fetch(through)
	var bare, proxied time.Duration
	for b.Loop() {
		bare += fetch(direct)
		proxied += fetch(through)
		p.Take()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(bare.Microseconds())/1e3/float64(b.N), "ms/direct")
	b.ReportMetric(float64(proxied.Microseconds())/1e3/float64(b.N), "ms/proxy")
	part := float64(proxied) / float64(bare)
	if b.ReportMetric(part, "x"); b.N > 20 && part > proxyBar {
		b.Errorf("a request through the proxy takes %.2f times a direct one, the bar is %.1f", part, proxyBar)
	}
}

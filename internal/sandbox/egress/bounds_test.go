package egress

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// tunneled returns a connection of a command to a host, behind CONNECT and TLS.
func tunneled(t *testing.T, p *Proxy, host string) net.Conn {
	t.Helper()
	conn := dialed(p)
	t.Cleanup(func() { conn.Close() })
	io.WriteString(conn, "CONNECT "+host+":443 HTTP/1.1\r\nHost: "+host+":443\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.Authority())
	return tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: host})
}

// TestEndlessHeader: a request with an endless header uses bounded memory of the node,
// inside and outside a tunnel.
func TestEndlessHeader(t *testing.T) {
	w := newWorld(t)
	p, _ := w.proxy(t, "list:files.net")
	for name, conn := range map[string]net.Conn{"plain": dialed(p), "tunnel": tunneled(t, p, "files.net")} {
		must.Do(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		_, err := io.WriteString(conn, "GET http://files.net/ HTTP/1.1\r\nHost: files.net\r\n")
		sent := 0
		for line := "X: " + strings.Repeat("x", 64<<10) + "\r\n"; err == nil && sent < 32<<20; sent += len(line) {
			_, err = io.WriteString(conn, line)
		}
		if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %d bytes of a header are taken, %v", name, sent, err)
		}
		conn.Close()
	}
}

// TestCloseEndsTunnel: a server with an endless answer does not keep a closed proxy from
// ending, inside and outside a tunnel.
func TestCloseEndsTunnel(t *testing.T) {
	w := newWorld(t)
	p, c := w.proxy(t, "list:files.net")
	for _, scheme := range []string{"http", "https"} {
		resp := must.Get(c.Get(scheme + "://files.net/endless"))(t)
		defer resp.Body.Close()
	}
	must.Do(t, p.Close())
	for range 2 {
		select {
		case <-w.ended:
		case <-time.After(10 * time.Second):
			t.Fatal("a server still has the connection of a proxy that is closed")
		}
	}
}

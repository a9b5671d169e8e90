package egress

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestTransport: requests of the node go where those of commands go, with the same secrets
// and evidence, and what the proxy says itself is an error.
func TestTransport(t *testing.T) {
	w := newWorld(t)
	w.addrs["private.net"] = []netip.Addr{netip.MustParseAddr("10.1.2.3")}
	p, _ := w.proxy(t, "read_only:files.net,private.net,plain.net", Secret{Host: "files.net", Header: "Authorization", Value: "Bearer " + secret, hidden: []string{secret}})
	client := http.Client{Transport: p.Transport()}
	for _, tt := range []struct {
		method, to string
		says       string // of an answer
		refused    string
		status     int // that is recorded
	}{
		{"GET", "https://files.net/x", "GET files.net ", "", 200},
		{"GET", "http://plain.net/", "GET plain.net ", "", 200},
		{"GET", "https://files.net/echo", "before Bearer " + strings.Repeat("*", len(secret)) + " after", "", 200},
		{"GET", "http://files.net/", "", "a secret goes to files.net, so it is reached by https alone", 403},
		{"POST", "https://files.net/", "", "POST: this run may read alone, by GET and HEAD", 403},
		{"GET", "http://evil.net/", "", `"evil.net" is not among the hosts that this run may reach`, 403},
		{"GET", "https://evil.net/", "", `"evil.net" is not among the hosts that this run may reach`, 403},
		{"GET", "https://127.0.0.1/", "", `"127.0.0.1" is not among the hosts that this run may reach`, 403},
		{"GET", "http://plain.net:8080/", "", "port 8080 is not the one of http: only port 80 of http and port 443 of https are reached", 403},
		{"GET", "https://private.net/", "", "private.net is at 10.1.2.3, which is no address of the Internet", 403},
		{"GET", "https://files.net/away", "", `"elsewhere.org" is not among the hosts that this run may reach`, 0},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tt.method, tt.to, nil)
		must.Do(t, err)
		resp, err := client.Do(r)
		if err != nil {
			if tt.refused == "" || !strings.HasSuffix(err.Error(), ": "+tt.refused) {
				t.Errorf("%s %s: %v, want %q", tt.method, tt.to, err, tt.refused)
			}
		} else {
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || tt.refused != "" || string(text) != tt.says {
				t.Errorf("%s %s: %q, %v, want %q", tt.method, tt.to, text, err, tt.says)
			}
		}
		told, _ := p.Take()
		if tt.status != 0 && (len(told) != 1 || told[0].Status != tt.status || told[0].Refused != tt.refused) || tt.status == 0 && len(told) != 2 {
			t.Errorf("%s %s: the evidence is %+v", tt.method, tt.to, told)
		}
	}
	must.Do(t, p.Close())
	if _, err := client.Get("http://plain.net/"); err == nil {
		t.Error("a closed proxy carries a request")
	}
}

// tunneled is a connection of a command to a host, behind CONNECT and TLS.
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

// TestEndlessHeader: a request whose header does not end takes no memory of the node without
// end, in a tunnel and outside of one.
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

// TestCloseEndsTunnel: a server that does not end its answer holds nothing of a proxy that is
// closed, in a tunnel and outside of one.
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

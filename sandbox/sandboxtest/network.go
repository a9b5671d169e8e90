package sandboxtest

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

var listed = promise{func(c sandbox.Capabilities) bool { return slices.Contains(c.Networks, sandbox.NetworkList) }, "no list of hosts"}

// testNetworkList: commands reach the proxy only: not the loopback of the host, not its
// sockets, and no other command.
func testNetworkList(t *testing.T, s *suite) {
	var served atomic.Int32
	serve := func(c net.Conn) {
		go func() {
			defer c.Close()
			r, err := http.ReadRequest(bufio.NewReader(c))
			if err != nil {
				return
			}
			served.Add(1)
			body := "through to " + r.URL.String()
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
		}()
	}
	tcp := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer tcp.Close()
	udp := must.Get(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	defer udp.Close()
	dir := must.Get(os.MkdirTemp("", "sock"))(t) // the name of a socket must be short
	defer os.RemoveAll(dir)
	unix := must.Get(net.Listen("unix", filepath.Join(dir, "s")))(t)
	defer unix.Close()

	const network = "list:*.example.org,example.org"
	b := s.openSpec(t, sandbox.Spec{Dir: t.TempDir(), Network: network, Proxy: serve, Authority: []byte("an authority\n")})
	if got := b.Info().Network; got != network {
		t.Errorf("the sandbox says that its network is %q", got)
	}
	b.want(b.sh(`cat "$SSL_CERT_FILE"; rm -f "$SSL_CERT_FILE"; cat "$SSL_CERT_FILE"`), sandbox.Exited, 0, "an authority\nan authority\n")
	b.installProbe()
	env := map[string]string{
		"TCP": tcp.Addr().String(), "UDP": udp.LocalAddr().String(), "UNIX": unix.Addr().String(), "ABSTRACT": "@rath-sandboxtest-none", "URL": "http://example.org/a",
	}
	by := b.probe(env, "tcp", "unix", "abstract unix", "netlink", "packet", "vsock", "alg", "raw", "connect to the Internet")
	for name, result := range by {
		if result.text == "succeeded" {
			t.Errorf("%s: %s", name, result.text)
		}
	}
	for name, result := range b.probe(env, "proxy", "udp", "a server of one's own") {
		if result.text != "succeeded" && name != "udp" {
			t.Errorf("%s: %s", name, result.text)
		}
	}
	if served.Load() == 0 {
		t.Error("the proxy got no connection")
	}
	must.Do(t, udp.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
	if n, _, err := udp.ReadFrom(make([]byte, 10)); err == nil {
		t.Errorf("%d bytes came to the host's loopback by UDP", n)
	}
	s.end(t, "pass by the proxy of a list of hosts", refusals(by))
	// Another sandbox has another network.
	other := s.openSpec(t, sandbox.Spec{Dir: t.TempDir(), Network: network, Proxy: func(c net.Conn) { c.Close() }})
	other.installProbe()
	if got := other.probe(env, "proxy")["proxy"]; got.text == "succeeded" {
		t.Error("the other sandbox came through the proxy of the first one")
	} else {
		s.end(t, "use the proxy of another sandbox", "its own answers")
	}
}

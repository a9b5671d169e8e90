// Package loopback carries the connections of commands, which reach only the loopback of a
// network namespace, to a proxy outside.
package loopback

import (
	"io"
	"net"
	"strconv"
	"sync"
)

// Port is the proxy's port on 127.0.0.1 for commands. No other listener exists in their
// namespace.
const Port = 3128

// Address is the address of the proxy.
var Address = net.JoinHostPort("127.0.0.1", strconv.Itoa(Port))

// Environment returns the variables by which programs find the proxy and trust the
// authority in a file. Programs use different names for it.
func Environment(authority string) map[string]string {
	env := map[string]string{"NO_PROXY": "localhost,127.0.0.1,::1", "no_proxy": "localhost,127.0.0.1,::1"}
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		env[name] = "http://" + Address
	}
	for _, name := range []string{
		"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO", "PIP_CERT", "AWS_CA_BUNDLE", "DENO_CERT",
	} {
		env[name] = authority
	}
	return env
}

// most bounds the concurrent connections.
const most = 256

// Forward joins each connection of l with a connection that dial opens, until l is closed.
// It does not wait for the remaining connections.
func Forward(l net.Listener, dial func() (net.Conn, error)) {
	slots := make(chan struct{}, most)
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		select {
		case slots <- struct{}{}:
		default:
			c.Close()
			continue
		}
		go func() {
			defer func() { <-slots }()
			defer c.Close()
			to, err := dial()
			if err != nil {
				return
			}
			defer to.Close()
			Join(c, to)
		}()
	}
}

// Join copies in both directions until both ends have finished, or one fails.
func Join(a, b net.Conn) {
	var wg sync.WaitGroup
	half := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		if w, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
			_ = w.CloseWrite()
			return
		}
		to.Close()
		from.Close()
	}
	wg.Go(func() { half(a, b) })
	wg.Go(func() { half(b, a) })
	wg.Wait()
}

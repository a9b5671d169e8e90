// Package loopback brings the connections of commands, which reach nothing but the
// loopback of a network namespace, to a proxy outside of it.
package loopback

import (
	"io"
	"net"
	"strconv"
	"sync"
)

// Port is where commands find the proxy on 127.0.0.1. In their namespace nothing else
// listens.
const Port = 3128

// Address is that of the proxy.
var Address = net.JoinHostPort("127.0.0.1", strconv.Itoa(Port))

// Environment returns the variables by which programs find the proxy, and trust the
// authority in a file. There is no one name for it.
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

// most bounds the connections at one time.
const most = 256

// Forward carries each connection of l to one that dial opens, until l is closed. It does
// not wait for the connections that are left then.
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

// Join copies both ways until both ends have said all, or one is gone.
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

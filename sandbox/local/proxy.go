package local

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/rathcluster/rath/internal/sandbox/loopback"
	"github.com/rathcluster/rath/sandbox"
)

// proxy is the access of commands to the proxy of their sandbox.
type proxy struct {
	own       string // the folder of its socket; "" if it is on the loopback already
	authority string // the file of its certificate
	socket    *loopback.Socket
}

// openProxy writes the files that commands need for the proxy into a sandbox's folder.
func openProxy(folder string, s sandbox.Spec, isThere bool) (*proxy, error) {
	p := &proxy{authority: filepath.Join(folder, "authority.pem")}
	err := os.WriteFile(p.authority, s.Authority, 0o644)
	switch {
	case err != nil, isThere:
		return p, err
	case s.Proxy == nil:
		return nil, errors.New("there is none to bring the connections of commands to")
	}
	p.own = folder
	p.socket, err = loopback.Listen(folder, s.Proxy)
	return p, err
}

// folder returns the folder of the socket; "" if there is none.
func (p *proxy) folder() string {
	if p == nil {
		return ""
	}
	return p.own
}

func (p *proxy) close() error {
	if p.socket == nil {
		return nil
	}
	return p.socket.Close()
}

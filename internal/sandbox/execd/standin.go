package execd

import (
	"errors"
	"net"
	"path/filepath"
	"sync"

	"github.com/rathcluster/rath/sandbox"
)

// StandIn is a daemon in this process whose commands another backend runs, over a directory
// of this host. It is for tests of code that starts containers and pods, without either. It
// serves a listener, of [ListenContainer] or [ListenPod], until its holder is gone or the
// listener is closed. Closing the listener has the effect of a SIGKILL: all connections and
// commands of the daemon end. StandIn returns when all of them have ended.
func StandIn(l net.Listener, workspace string, b sandbox.Backend) error {
	k := &killable{Listener: l, conns: make(map[net.Conn]bool)}
	d := &server{workspace: workspace, backend: b, oomKills: func() int { return 0 }}
	if at, container := l.Addr().(*net.UnixAddr); container {
		d.socketDir = filepath.Dir(at.Name)
	} else {
		d.carriers = make(chan *stream, mostCarriers)
	}
	err := d.accept(k, DefaultLease)
	k.kill()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.box != nil {
		err = errors.Join(err, d.box.Close(), d.files.Close())
	}
	return err
}

// killable is a listener that can close its connections.
type killable struct {
	net.Listener

	mu     sync.Mutex
	conns  map[net.Conn]bool
	killed bool
}

// Accept implements net.Listener.
func (k *killable) Accept() (net.Conn, error) {
	c, err := k.Listener.Accept()
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.killed {
		return nil, errors.Join(net.ErrClosed, c.Close())
	}
	k.conns[c] = true
	return c, nil
}

func (k *killable) kill() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.killed = true
	for c := range k.conns {
		_ = c.Close() // it may be closed already
	}
}

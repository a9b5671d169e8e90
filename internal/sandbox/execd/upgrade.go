package execd

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// Where a daemon is reachable only by HTTP, through third-party proxies, a connection is a
// WebSocket, and TLS runs inside it as over any other connection.

// DirVariable is the variable with the directory, in a sandbox of a service, that holds the
// workspace and all files of the daemon. KeysVariable has the daemon's end of the keys.
const DirVariable = "RATH_SANDBOX_DIR"

// WorkspaceName is the name of the workspace below the directory of DirVariable.
const WorkspaceName = "workspace"

// UpgradeCommand returns the command that starts the daemon from this program. The daemon
// prints its port on standard output, in a line that begins with PortLine.
func UpgradeCommand(program string) []string { return []string{program, upgradeRole} }

// PortLine begins the line with the port of a daemon.
const PortLine = "rath sandbox daemon at port "

// DialUpgraded becomes the holder of a daemon, as Dial does, through WebSockets that open
// makes.
func DialUpgraded(ctx context.Context, keys *Keys, lease time.Duration, open func(context.Context) (*websocket.Conn, error)) (*Client, error) {
	return take(ctx, lease, func() error { return nil }, func(ctx context.Context) (net.Conn, error) {
		ws, err := open(ctx)
		if err != nil {
			return nil, err
		}
		c := tls.Client(upgraded(ws), keys.holder)
		ctx, cancel := context.WithTimeout(ctx, handshakePatience)
		defer cancel()
		if err := c.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		return c, nil
	})
}

// upgraded returns the byte stream of a WebSocket.
func upgraded(ws *websocket.Conn) net.Conn {
	ws.SetReadLimit(-1) // the readers bound the data
	return wsConn{websocket.NetConn(context.Background(), ws, websocket.MessageBinary), ws}
}

// wsConn closes without a closing handshake: TLS has already signaled the end, and waiting
// for a peer that is gone would take seconds.
type wsConn struct {
	net.Conn
	ws *websocket.Conn
}

func (c wsConn) Close() error {
	err := c.ws.CloseNow()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return err
}

// upgrades is a listener of the WebSockets that arrive at another listener.
type upgrades struct {
	net.Listener
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// listenUpgraded serves WebSockets at l until the returned listener is closed.
func listenUpgraded(l net.Listener, config *tls.Config) net.Listener {
	u := &upgrades{Listener: l, conns: make(chan net.Conn), done: make(chan struct{})}
	s := &http.Server{ReadHeaderTimeout: handshakePatience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// TLS authenticates the request, so it may come from any origin.
		ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
		if err != nil {
			return // it has been answered
		}
		select {
		case u.conns <- tls.Server(upgraded(ws), config):
		case <-u.done:
			_ = ws.CloseNow()
		}
	})}
	go func() {
		_ = s.Serve(l) // until l is closed
		u.end()
	}()
	return u
}

func (u *upgrades) end() { u.once.Do(func() { close(u.done) }) }

// Accept implements net.Listener.
func (u *upgrades) Accept() (net.Conn, error) {
	select {
	case c := <-u.conns:
		return c, nil
	case <-u.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (u *upgrades) Close() error {
	u.end()
	return u.Listener.Close()
}

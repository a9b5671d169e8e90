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

// Where only HTTP reaches a daemon, through proxies of others, a connection is a
// WebSocket, and TLS goes through it as over any other one.

// DirVariable is the variable with the directory, in a sandbox of a service, that holds
// the workspace and all that the daemon makes. Its end of the keys comes by KeysVariable.
const DirVariable = "RATH_SANDBOX_DIR"

// WorkspaceName is the name of the workspace in that directory.
const WorkspaceName = "workspace"

// UpgradeCommand is what starts the daemon of this name, which says on its standard output
// at which port it listens: a line that begins with PortLine.
func UpgradeCommand(program string) []string { return []string{program, upgradeRole} }

// PortLine begins the line with the port of a daemon.
const PortLine = "rath sandbox daemon at port "

// DialUpgraded takes hold of a daemon through WebSockets, which open makes, as Dial does.
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

// upgraded is the bytes of a WebSocket.
func upgraded(ws *websocket.Conn) net.Conn {
	ws.SetReadLimit(-1) // what comes is bounded by who reads it
	return wsConn{websocket.NetConn(context.Background(), ws, websocket.MessageBinary), ws}
}

// wsConn ends without words: TLS has said what there is to say, and waiting for the other
// end's answer would take seconds where it is gone.
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

// upgrades is the listener of the WebSockets that come to another one.
type upgrades struct {
	net.Listener
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// listenUpgraded serves WebSockets at l, until the listener that it returns is closed.
func listenUpgraded(l net.Listener, config *tls.Config) net.Listener {
	u := &upgrades{Listener: l, conns: make(chan net.Conn), done: make(chan struct{})}
	s := &http.Server{ReadHeaderTimeout: handshakePatience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Whose request it is TLS tells, so that it may come from any page.
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

package conn

import (
	"errors"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/permission"
)

const (
	// DefaultURL is where a NATS server listens on this machine.
	DefaultURL = nats.DefaultURL
	// DefaultConnectTimeout bounds one attempt to reach one server.
	DefaultConnectTimeout = 5 * time.Second
	// DefaultDrainTimeout bounds Close.
	DefaultDrainTimeout = 10 * time.Second
	// NodeInbox is the inbox prefix of a node. Clients without credentials may
	// subscribe to the common one.
	NodeInbox = permission.InboxNode
)

// Options configure a connection. The zero value connects to DefaultURL.
type Options struct {
	// URL names one or more servers, separated by commas; empty means
	// DefaultURL. It is not used with a Dialer.
	URL string
	// Dialer connects to a server in this process.
	Dialer func() (net.Conn, error)
	// Alone marks a server that belongs to no cluster: each stream has one replica.
	Alone bool
	// Name identifies the connection in the server's monitoring.
	Name string
	// User and Password, or CredsFile (a JWT and its seed), or NKeyFile (a
	// seed) log in; none of them is a client without credentials.
	User, Password, CredsFile, NKeyFile string
	// Login returns the user and the password at each connect, because a restarted server
	// may have others; nil means User and Password.
	Login func() (user, password string)
	// As is the user that control requests name, for credentials that may name any; empty
	// means the credentials' own user, see Conn.User.
	As string
	// RootCAs is a PEM file of certificate authorities; with it, or with a
	// URL of scheme tls, the connection is encrypted.
	RootCAs string
	// Inbox is the subject prefix of answers; empty means "_INBOX". A node
	// uses NodeInbox, so that no other connection reads its answers.
	Inbox string
	// ConnectTimeout and DrainTimeout are bounded waits; zero means
	// DefaultConnectTimeout and DefaultDrainTimeout.
	ConnectTimeout, DrainTimeout time.Duration
	// Logger logs events of the connection in the background; nil discards them.
	Logger *slog.Logger
}

func (o *Options) setDefaults() {
	if o.URL == "" {
		o.URL = DefaultURL
	}
	if o.ConnectTimeout <= 0 {
		o.ConnectTimeout = DefaultConnectTimeout
	}
	if o.DrainTimeout <= 0 {
		o.DrainTimeout = DefaultDrainTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func (o *Options) validate() error {
	if o.Dialer == nil {
		for s := range strings.SplitSeq(o.URL, ",") {
			_, err := url.Parse(strings.TrimSpace(s))
			if err == nil {
				_, err = serverURL(s)
			}
			if err != nil {
				// The cause of url.Parse quotes its input, which may hold a password.
				return errors.New("nats/conn: a server address is not a URL; write nats://host:4222")
			}
		}
	}
	return nil
}

// inbox is the subject prefix of answers.
func (o *Options) inbox() string {
	if o.Inbox == "" {
		return permission.InboxClient
	}
	return o.Inbox
}

// here reports whether the server is on this machine.
func (o *Options) here() bool {
	if o.Dialer != nil {
		return true
	}
	for s := range strings.SplitSeq(o.URL, ",") {
		u, err := serverURL(s)
		if err != nil {
			return false
		}
		if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return false
		}
	}
	return true
}

// where names the servers without the credentials a URL may hold.
func (o *Options) where() string {
	if o.Dialer != nil {
		return "the NATS server in this process"
	}
	var names []string
	for s := range strings.SplitSeq(o.URL, ",") {
		if u, err := serverURL(s); err == nil {
			u.User = nil
			names = append(names, u.String())
		}
	}
	return strings.Join(names, ", ")
}

// serverURL parses an address as the NATS client does: an address without a scheme may also
// hold a user and a password.
func serverURL(s string) (*url.URL, error) {
	if s = strings.TrimSpace(s); !strings.Contains(s, "://") {
		s = "nats://" + s
	}
	return url.Parse(s)
}

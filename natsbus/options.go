package natsbus

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/messages"
)

const (
	// DefaultURL is where a NATS server listens on this machine.
	DefaultURL = nats.DefaultURL
	// DefaultGeneration is the generation of event streams of a new installation.
	DefaultGeneration = 1
	// DefaultPartitions is the number of event streams of a generation: each is a
	// writer of its own, and on three replicas a Raft group.
	DefaultPartitions = 4
	// EmbeddedPartitions is that number for a server which syncs in rounds: a round
	// syncs each stream that was written to, so that more of them wait for more.
	EmbeddedPartitions = 1
	// DefaultConnectTimeout bounds one attempt to reach one server.
	DefaultConnectTimeout = 5 * time.Second
	// DefaultDrainTimeout bounds Close.
	DefaultDrainTimeout = 10 * time.Second
	// NodeInbox is the inbox prefix of a node. Clients without credentials may
	// subscribe to the common one.
	NodeInbox = messages.InboxNode
)

// Options configure a connection. The zero value is a connection to
// DefaultURL at level fsync, which needs a Probe.
type Options struct {
	// URL names one or more servers, separated by commas; empty means
	// DefaultURL. It is not used with a Dialer.
	URL string
	// Dialer connects to a server in this process.
	Dialer func() (net.Conn, error)
	// Alone says that the server belongs to no cluster: each stream has one replica.
	Alone bool
	// Name tells the connection from others in the server's monitoring.
	Name string
	// User and Password, or CredsFile (a JWT and its seed), or NKeyFile (a
	// seed) log in; none of them is a client without credentials.
	User, Password, CredsFile, NKeyFile string
	// Login is asked for the user and the password at each connect, where a
	// server may have others when it is back; nil means User and Password.
	Login func() (user, password string)
	// RootCAs is a PEM file of certificate authorities; with it, or with a
	// URL of scheme tls, the connection is encrypted.
	RootCAs string
	// Disk says, without waiting, how much room the disk of the streams has, where
	// this process can see it; nil means that it cannot.
	Disk func() Disk
	// Inbox is the subject prefix of answers; empty means "_INBOX". A node
	// uses NodeInbox, so that nobody else reads what it is told.
	Inbox string
	// Client says that the connection submits, asks and watches only, like a
	// program outside the cluster: nothing is verified and it does not store.
	Client bool
	// Level is the durability to promise; empty means Fsync.
	Level Level
	// Probe asks the servers how they store. Level Fsync needs one.
	Probe Probe
	// Generation and Partitions say which event streams new sessions use; zero
	// means DefaultGeneration, and as many partitions as the generation has, or
	// NewPartitions if it is new. Partitions are fixed per generation.
	Generation, Partitions uint32
	// NewPartitions is the number of partitions of a new generation; zero is
	// DefaultPartitions.
	NewPartitions uint32
	// Replicas of each stream; zero means 1.
	Replicas int
	// StoreBytes is shared among the streams that Provision creates; zero
	// means DefaultStoreBytes.
	StoreBytes int64
	// KeepResults is for how long Provision has stored results kept; zero is as
	// long as there is room. Later they are read from the logs.
	KeepResults time.Duration
	// ConnectTimeout and DrainTimeout are bounded waits; zero means
	// DefaultConnectTimeout and DefaultDrainTimeout.
	ConnectTimeout, DrainTimeout time.Duration
	// Logger receives what happens to the connection in the background; nil
	// discards it.
	Logger *slog.Logger
}

func (o *Options) setDefaults() {
	if o.URL == "" {
		o.URL = DefaultURL
	}
	if o.Level == "" {
		o.Level = Fsync
	}
	if o.Generation == 0 {
		o.Generation = DefaultGeneration
	}
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	if o.StoreBytes == 0 {
		o.StoreBytes = DefaultStoreBytes
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
				return errors.New("natsbus: a server address is not a URL; write nats://host:4222")
			}
		}
	}
	if o.Replicas < 0 || o.Replicas > 5 || o.Replicas%2 == 0 {
		return fmt.Errorf("natsbus: %d replicas: want 1, 3 or 5", o.Replicas)
	}
	if o.Partitions > MaxPartitions {
		return fmt.Errorf("natsbus: %d partitions: at most %d are allowed", o.Partitions, MaxPartitions)
	}
	if _, err := ParseLevel(string(o.Level)); err != nil {
		return err
	}
	return nil
}

// inbox is the subject prefix of answers.
func (o *Options) inbox() string {
	if o.Inbox == "" {
		return messages.InboxClient
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

// serverURL reads an address as the NATS client does: one without a scheme may
// hold a user and a password too.
func serverURL(s string) (*url.URL, error) {
	if s = strings.TrimSpace(s); !strings.Contains(s, "://") {
		s = "nats://" + s
	}
	return url.Parse(s)
}

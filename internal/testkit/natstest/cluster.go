package natstest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// Cluster is a JetStream cluster in this process, on the loopback interface and in real
// time: a bubble cannot show the behaviour of three replicas or the loss of a server.
// Access is open until Login.
type Cluster struct {
	servers []*server.Server
	configs []*server.Options
}

// ServerName returns the name of a server, which is also one of its tags.
func ServerName(i int) string { return fmt.Sprintf("n%d", i) }

// Tags of servers, for the placement of streams.
const (
	First = "first" // three of the servers
	Last  = "last"  // the last three: in a cluster of five one is both
)

// StartCluster starts a cluster of n servers that sync every write, waits
// until it has a leader and stops it when the test ends.
func StartCluster(tb testing.TB, n int) *Cluster {
	tb.Helper()
	enter(tb)
	c := &Cluster{servers: make([]*server.Server, n)}
	var routes []string
	ports := make([]int, n)
	for i := range ports {
		ports[i] = FreePort(tb)
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[i]))
	}
	for i, port := range ports {
		var tags []string
		if i < 3 {
			tags = append(tags, First)
		}
		if i >= n-3 {
			tags = append(tags, Last)
		}
		tags = append(tags, ServerName(i))
		c.configs = append(c.configs, &server.Options{
			ServerName: ServerName(i), Tags: tags, Host: "127.0.0.1", Port: FreePort(tb),
			JetStream: true, StoreDir: tb.TempDir(), SyncAlways: true, NoSigs: true, NoLog: true,
			JetStreamMaxStore: maxStore, JetStreamMaxMemory: maxStore,
			Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: port},
			Routes:  server.RoutesFromStr(strings.Join(routes, ",")),
		})
	}
	tb.Cleanup(func() {
		for i := range c.servers {
			c.Stop(i)
		}
	})
	for i := range c.servers {
		c.Start(tb, i)
	}
	return c
}

// Ports below the ranges that Linux, macOS and Windows use for outgoing connections.
const firstPort, ports = 20000, 10000

// given are the ports that this process was given: each is given once.
var given sync.Map

// FreePort is a TCP port of this machine that no process listens on. No outgoing
// connection gets it either, so that it is still free when a server listens
// there, and when one does so again after it was stopped.
func FreePort(tb testing.TB) int {
	tb.Helper()
	var err error
	for range 100 {
		port := firstPort + rand.IntN(ports)
		if _, was := given.LoadOrStore(port, true); was {
			continue
		}
		var l net.Listener
		if l, err = new(net.ListenConfig).Listen(tb.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port)); err != nil {
			continue // another test has it
		}
		if err = l.Close(); err == nil {
			return port
		}
	}
	tb.Fatal("no free port: ", err)
	return 0
}

// Start starts a stopped server on its directory. When all are running, it waits until all
// know the cluster's leader and the leader has heard from all of them: earlier, the cluster
// has no place for a stream with that many replicas.
func (c *Cluster) Start(tb testing.TB, i int) {
	tb.Helper()
	s := must.Get(server.NewServer(c.configs[i]))(tb)
	c.servers[i] = s
	s.Start()
	if !s.ReadyForConnections(30 * time.Second) {
		tb.Fatalf("server %d is not ready", i)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	for !c.settled() {
		select {
		case <-ctx.Done():
			tb.Fatal("the cluster has no leader")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (c *Cluster) settled() bool {
	if slices.Contains(c.servers, nil) {
		return true // not all of them are running yet
	}
	known := 0
	for _, s := range c.servers {
		if !s.JetStreamIsCurrent() {
			return false
		}
		known = max(known, len(s.JetStreamClusterPeers())) // only the leader reports them
	}
	return known == len(c.servers)
}

// Stop stops a server and waits for it; the others elect new leaders.
func (c *Cluster) Stop(i int) {
	if s := c.servers[i]; s != nil {
		s.Shutdown()
		s.WaitForShutdown()
		c.servers[i] = nil
	}
}

// Login gives the servers exactly these users, each with its name as its password. They may
// publish on all subjects except those listed. Running servers apply the change to their
// connections, as after a reload of their configuration.
func (c *Cluster) Login(tb testing.TB, denied map[string][]string) {
	tb.Helper()
	for i, o := range c.configs {
		o = o.Clone()
		o.Users = nil
		for name, subjects := range denied {
			o.Users = append(o.Users, &server.User{Username: name, Password: name, Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Deny: subjects},
			}})
		}
		c.configs[i] = o
		if s := c.servers[i]; s != nil {
			must.Do(tb, s.ReloadOptions(o))
		}
	}
}

// Empty removes all that a stopped server stored, as the loss of its disk does.
func (c *Cluster) Empty(tb testing.TB, i int) {
	tb.Helper()
	must.Do(tb, os.RemoveAll(filepath.Join(c.configs[i].StoreDir, "jetstream")))
}

// URLs returns the addresses of all servers, separated by commas, beginning with the first
// one.
func (c *Cluster) URLs(first int) string {
	var urls []string
	for i := range c.configs {
		o := c.configs[(first+i)%len(c.configs)]
		urls = append(urls, fmt.Sprintf("nats://%s:%d", o.Host, o.Port))
	}
	return strings.Join(urls, ",")
}

// Leader is the server that leads a stream. It waits for one: the servers may be
// about to elect it.
func (c *Cluster) Leader(tb testing.TB, stream string) int {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	for {
		for i, s := range c.servers {
			if s != nil && s.JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream) {
				return i
			}
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("stream %s has no leader", stream)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

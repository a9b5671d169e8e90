package natsserver

import (
	"net/url"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Cluster configures how a server finds the other servers of its cluster. All of them have
// the same Name and the same Routes.
type Cluster struct {
	Name string
	// Host and Port are the address for the other servers; an empty Host is the server's.
	Host string
	Port int
	// Routes are the addresses "host:port" of all servers of the cluster, and may include
	// the server's own. A JetStream cluster of n servers needs n routes to determine its
	// majority.
	Routes []string
	// Handover is how long Retire takes to move clients to other servers; zero is 2 s.
	Handover time.Duration
}

func (c *Cluster) apply(conf *server.Options) {
	host := c.Host
	if host == "" {
		host = conf.Host
	}
	conf.Cluster = server.ClusterOpts{Name: c.Name, Host: host, Port: c.Port}
	for _, r := range c.Routes {
		conf.Routes = append(conf.Routes, &url.URL{Scheme: "nats-route", Host: r})
	}
	conf.LameDuckDuration = c.Handover
	if conf.LameDuckDuration == 0 {
		conf.LameDuckDuration = 2 * time.Second
	}
	// nats-server waits that long before it asks the first client to leave; leaderships are
	// transferred before.
	conf.LameDuckGracePeriod = conf.LameDuckDuration / 4
}

// ports returns the ports that Start must find free.
func (o *Options) ports() []int {
	ports := []int{o.Port, o.MonitorPort}
	if o.Cluster != nil {
		ports = append(ports, o.Cluster.Port)
	}
	return ports
}

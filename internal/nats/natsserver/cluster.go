package natsserver

import (
	"net/url"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Cluster says how a server finds the others of its cluster. Each of them is
// told the same Name and the same Routes.
type Cluster struct {
	Name string
	// Host and Port are where the others connect; an empty Host is the one of
	// the server.
	Host string
	Port int
	// Routes are the addresses "host:port" of all servers of the cluster. The
	// own one may be among them; a JetStream cluster of n servers needs n
	// routes to know how many a majority is.
	Routes []string
	// Handover is how long Retire takes to send clients away; zero is 2 s.
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
	// nats-server waits that long before it asks the first client to leave; the
	// leaders are handed over before.
	conf.LameDuckGracePeriod = conf.LameDuckDuration / 4
}

// ports are those that Start must find free.
func (o *Options) ports() []int {
	ports := []int{o.Port, o.MonitorPort}
	if o.Cluster != nil {
		ports = append(ports, o.Cluster.Port)
	}
	return ports
}

package egress

import (
	"context"
	"crypto/x509"
	"net"
	"net/netip"
	"time"
)

// connectTimeout is how long a server may take to take a connection.
const connectTimeout = 20 * time.Second

// Options are what the proxies of a node share. The zero value is useful.
type Options struct {
	// Private are the ranges of addresses that may be reached although they are not of
	// the Internet, such as a registry of modules of one's own.
	Private []netip.Prefix
	// Secrets are put into requests.
	Secrets []Secret
	// Roots are the authorities of servers; nil is those of the system.
	Roots *x509.CertPool
	// Lookup resolves names and Dial connects to addresses; nil is the system's.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	Dial   func(ctx context.Context, network, addr string) (net.Conn, error)
}

// lookup resolves a name.
func (o *Options) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if o.Lookup != nil {
		return o.Lookup(ctx, host)
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// dial connects to an address.
func (o *Options) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if o.Dial != nil {
		return o.Dial(ctx, network, addr)
	}
	d := net.Dialer{Timeout: connectTimeout}
	return d.DialContext(ctx, network, addr)
}

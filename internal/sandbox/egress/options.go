package egress

import (
	"context"
	"crypto/x509"
	"net"
	"net/netip"
	"time"
)

// connectTimeout is how long a server may take to accept a connection.
const connectTimeout = 20 * time.Second

// Options are the settings that the proxies of a node share. The zero value is useful.
type Options struct {
	// Private are the ranges of non-public addresses that may be reached, such as a private
	// module registry.
	Private []netip.Prefix
	// Secrets are added to requests.
	Secrets []Secret
	// Roots are the authorities of servers; nil means the system's.
	Roots *x509.CertPool
	// Lookup resolves names and Dial connects to addresses; nil means the system's
	// functions.
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

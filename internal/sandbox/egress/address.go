package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// special are the non-public ranges that netip does not report: ranges of the IANA
// registries of special-purpose addresses, and ranges that embed an IPv4 address in an IPv6
// one.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"), // between carrier and customer; metadata of some clouds
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/96"),
	netip.MustParsePrefix("::ffff:0:0:0/96"),
	netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("100::/64"),
	netip.MustParsePrefix("2001::/23"),
	netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("3fff::/20"),
	netip.MustParsePrefix("5f00::/16"),
	netip.MustParsePrefix("fec0::/10"),
}

// refusedError is the reason why a request is not allowed.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }

// Public reports whether an address is public.
func Public(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return a.IsGlobalUnicast() && !a.IsPrivate() && !slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Connect connects to a host whose addresses are all allowed. It dials an address that it
// checked, so a later change of the name has no effect.
func (o *Options) Connect(ctx context.Context, network, hostPort string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, err
	}
	addrs, err := o.lookup(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", host, err)
	}
	for _, a := range addrs {
		if !Public(a) && !slices.ContainsFunc(o.Private, func(r netip.Prefix) bool { return r.Contains(a.Unmap()) }) {
			return nil, &refusedError{fmt.Sprintf("%s is at %s, which is no address of the Internet", host, a)}
		}
	}
	var last error
	for _, a := range addrs {
		c, err := o.dial(ctx, network, net.JoinHostPort(a.String(), port))
		if err == nil {
			return c, nil
		}
		last = err
	}
	if last == nil {
		last = fmt.Errorf("%s has no address", host)
	}
	return nil, last
}

// Refused reports whether an error of Connect is about an address that is not allowed.
func Refused(err error) bool {
	_, refused := errors.AsType[*refusedError](err)
	return refused
}

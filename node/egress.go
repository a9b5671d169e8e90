package node

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/rathcluster/rath/internal/sandbox/egress"
)

// ParsePrivate reads ranges of addresses with commas between them, as
// [Sandbox.Private] takes them.
func ParsePrivate(text string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for field := range strings.SplitSeq(text, ",") {
		if field = strings.TrimSpace(field); field == "" {
			continue
		}
		p, err := netip.ParsePrefix(field)
		if err != nil {
			return nil, fmt.Errorf("node: private range %q: write an address and the length of its prefix, such as 10.1.0.0/16", field)
		}
		all = append(all, p.Masked())
	}
	return all, nil
}

// egress returns the options that the proxies of sandboxes share.
func (n *Instance) egress() (egress.Options, error) {
	getenv := n.o.Env
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	secrets, err := egress.ParseSecrets(n.o.Sandbox.Secrets, getenv)
	if err != nil {
		return egress.Options{}, fmt.Errorf("node: sandbox secrets: %w", err)
	}
	o := n.o.world
	o.Private, o.Secrets = n.o.Sandbox.Private, secrets
	return o, nil
}

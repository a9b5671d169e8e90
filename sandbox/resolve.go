package sandbox

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Resolve implements [Backend.Resolve] for the backend of this name, except for the image,
// which the backend resolves. It returns the Info for s, or ErrUnsupported. It requires at
// least IsolationKernel unless s.MinIsolation is set.
func (c Capabilities) Resolve(name string, s Spec) (Info, error) {
	refuse := func(format string, args ...any) (Info, error) {
		return Info{}, fmt.Errorf("%s: %w: "+format, append([]any{name, ErrUnsupported}, args...)...)
	}
	if least := cmp.Or(s.MinIsolation, IsolationKernel); !c.Isolation.AtLeast(least) {
		return refuse("isolation %q was requested and %q is offered (%s); request less, or use a backend or runtime with more isolation", least, c.Isolation, c.Detail)
	}
	if names := c.Unenforced(s.Limits); len(names) > 0 {
		return refuse("the limits %s; leave them out, or have the host of the sandboxes enforce them: see rath doctor", strings.Join(names, ", "))
	}
	if s.Image != "" && !c.Images {
		return refuse("the image %q: commands see the programs of this host; leave the image out, or use a backend with containers", s.Image)
	}
	network := cmp.Or(s.Network, Network(c.Networks[0]))
	if !slices.Contains(c.Networks, network.Kind()) {
		return refuse("the network %q: here it is one of %s; leave it out, or use a backend that offers it", network, strings.Join(c.Networks, ", "))
	}
	if s.Services && !c.Services {
		return refuse("services: commands have no network of their own to reach them on (%s); leave them out, or use a backend that lets commands have a network namespace", c.Detail)
	}
	return Info{Isolation: c.Isolation, Network: network, Limits: s.Limits, WholeTree: c.WholeTree, Services: s.Services}, nil
}

package sandbox

import (
	"fmt"
	"slices"
	"strings"
)

// Network is the set of hosts that the commands of a sandbox can reach, as text: "none",
// "open", or a list of host names: "list:github.com,*.golang.org" for any request, and
// "read_only:proxy.golang.org" for GET and HEAD only. "*." stands for any labels before the
// dot. [ParseNetwork] returns the canonical text. "" is the backend's default in a Spec,
// and an unknown network in a log.
type Network string

// The networks without a list.
const (
	NetworkNone Network = "none"
	NetworkOpen Network = "open"
)

// The prefixes of a list of hosts, which are also its kinds in [Capabilities].
const (
	NetworkList     = "list"
	NetworkReadOnly = "read_only"
)

// MaxHosts is the maximum number of hosts of a list.
const MaxHosts = 256

// ParseNetwork parses a network. It lower-cases, sorts and deduplicates the hosts.
func ParseNetwork(text string) (Network, error) {
	text = strings.TrimSpace(text)
	if n := Network(text); n == "" || n == NetworkNone || n == NetworkOpen {
		return n, nil
	}
	kind, list, ok := strings.Cut(text, ":")
	if !ok || kind != NetworkList && kind != NetworkReadOnly {
		return "", fmt.Errorf("network %.80q: write none, open, list:HOST,HOST or read_only:HOST,HOST", text)
	}
	var hosts []string
	for h := range strings.SplitSeq(list, ",") {
		h = strings.ToLower(strings.TrimSpace(h))
		if !validHost(h) {
			return "", fmt.Errorf("network: %.80q is no name of a host; write github.com or *.golang.org, without a scheme, port and path", h)
		}
		hosts = append(hosts, h)
	}
	slices.Sort(hosts)
	if hosts = slices.Compact(hosts); len(hosts) > MaxHosts {
		return "", fmt.Errorf("network: %d hosts, a list has at most %d; use a pattern, such as *.golang.org", len(hosts), MaxHosts)
	}
	return Network(kind + ":" + strings.Join(hosts, ",")), nil
}

// validHost reports whether h is a host name, optionally behind "*.". Addresses are not
// host names: a name is resolved when a connection is made.
func validHost(h string) bool {
	h = strings.TrimPrefix(h, "*.")
	if len(h) > 253 || !strings.Contains(h, ".") && h != "localhost" {
		return false
	}
	letters := false
	for label := range strings.SplitSeq(h, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		letters = false // of the last label: 10.0.0.1 has none
		for _, c := range label {
			switch {
			case c >= 'a' && c <= 'z':
				letters = true
			case c >= '0' && c <= '9', c == '-', c == '_':
			default:
				return false
			}
		}
	}
	return letters
}

// Kind returns the network's kind in [Capabilities]: its text without the hosts.
func (n Network) Kind() string {
	kind, _, _ := strings.Cut(string(n), ":")
	return kind
}

// Hosts returns the hosts of a list.
func (n Network) Hosts() []string {
	if _, list, ok := strings.Cut(string(n), ":"); ok {
		return strings.Split(list, ",")
	}
	return nil
}

// Listed reports whether the network is a list of hosts.
func (n Network) Listed() bool { return strings.Contains(string(n), ":") }

// Repeatable reports whether a call whose commands could reach this network can be repeated
// without harm, because it changed no state outside.
func (n Network) Repeatable() bool {
	return n == "" || n == NetworkNone || n.Kind() == NetworkReadOnly
}

// Within returns an error if a network reaches more than most. "" as most allows any list
// of hosts.
func (n Network) Within(most Network) error {
	over := func(what string) error {
		return fmt.Errorf("network %q: the node allows %s; ask for less", n, what)
	}
	switch {
	case n == "" || n == NetworkNone || n == most || most == NetworkOpen:
		return nil
	case most == "" && n.Listed():
		return nil
	case !n.Listed():
		return over("a list of hosts")
	case !most.Listed():
		return over("none")
	case most.Kind() == NetworkReadOnly && n.Kind() != NetworkReadOnly:
		return over("read_only alone")
	}
	for _, h := range n.Hosts() {
		if !most.Reaches(h) {
			return over(fmt.Sprintf("%s, and %s is not among them", strings.Join(most.Hosts(), ", "), h))
		}
	}
	return nil
}

// Reaches reports whether a host, or every host of a pattern, is in the list.
func (n Network) Reaches(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	return slices.ContainsFunc(n.Hosts(), func(h string) bool {
		tail, pattern := strings.CutPrefix(h, "*")
		return h == host || pattern && strings.HasSuffix(host, tail) && len(host) > len(tail)
	})
}

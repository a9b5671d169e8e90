package sandbox

import (
	"fmt"
	"slices"
	"strings"
)

// Network is what the commands of a sandbox can reach, as one text: "none", "open", or
// the names of hosts: "list:github.com,*.golang.org" for any request, and
// "read_only:proxy.golang.org" for GET and HEAD alone. "*." stands for any names before
// the dot. [ParseNetwork] returns the one text of each. "" is the backend's own default,
// where a Spec asks, and not known, where a log says so.
type Network string

// The networks without a list.
const (
	NetworkNone Network = "none"
	NetworkOpen Network = "open"
)

// The words before a list of hosts, which are what [Capabilities] name.
const (
	NetworkList     = "list"
	NetworkReadOnly = "read_only"
)

// MaxHosts is how many hosts a list can have.
const MaxHosts = 256

// ParseNetwork reads a network. Hosts are put into lower case and in order, each once.
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
		return "", fmt.Errorf("network: %d hosts, a list has at most %d; name what is common to them, such as *.golang.org", len(hosts), MaxHosts)
	}
	return Network(kind + ":" + strings.Join(hosts, ",")), nil
}

// validHost reports whether a text is the name of a host, at most behind "*.". Addresses
// are no names: what a name stands for is looked at when a connection is made.
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

// Kind returns the word that [Capabilities] name: the network without its hosts.
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

// Repeatable reports whether a call whose commands reached this network can be made again
// without harm: it changed nothing outside.
func (n Network) Repeatable() bool {
	return n == "" || n == NetworkNone || n.Kind() == NetworkReadOnly
}

// Within returns why a network reaches more than most does. "" as most is any list of
// hosts.
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

// Reaches reports whether a host, or each of a pattern, is one of a list.
func (n Network) Reaches(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	return slices.ContainsFunc(n.Hosts(), func(h string) bool {
		tail, pattern := strings.CutPrefix(h, "*")
		return h == host || pattern && strings.HasSuffix(host, tail) && len(host) > len(tail)
	})
}

package sandbox_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/sandbox"
)

// TestParseNetwork: each network has one text, which parses to itself.
func TestParseNetwork(t *testing.T) {
	for text, want := range map[string]sandbox.Network{
		"": "", "none": sandbox.NetworkNone, " open ": sandbox.NetworkOpen,
		"list:github.com": "list:github.com",
		"list: Proxy.golang.org , *.GitHub.com,github.com,github.com": "list:*.github.com,github.com,proxy.golang.org",
		"read_only:localhost": "read_only:localhost",
	} {
		got, err := sandbox.ParseNetwork(text)
		if err != nil || got != want {
			t.Errorf("%q reads as %q, %v, want %q", text, got, err, want)
		}
		if again, err := sandbox.ParseNetwork(string(got)); err != nil || again != got {
			t.Errorf("%q reads as %q, %v", got, again, err)
		}
	}
	many := make([]string, sandbox.MaxHosts+1)
	for i := range many {
		many[i] = fmt.Sprintf("h%d.example.org", i)
	}
	for _, text := range []string{
		"all", "list", "list:", "list:github.com,", "list:https://github.com", "list:github.com:443", "list:github.com/rath", "list:10.0.0.1",
		"list:[::1]", "list:*", "list:*.", "list:*.com,", "list:-a.org", "list:a..org", "list:a b.org", "list:com", "read_only:a_b.1",
		"list:" + strings.Repeat("a", 64) + ".org", "list:" + strings.Join(many, ","), "open:github.com",
	} {
		if got, err := sandbox.ParseNetwork(text); err == nil {
			t.Errorf("%.60q reads as %q", text, got)
		}
	}
}

// TestNetworkWithin: the node's network bounds a requested network.
func TestNetworkWithin(t *testing.T) {
	for _, tt := range []struct {
		asked, most sandbox.Network
		ok          bool
	}{
		{"", "none", true},
		{"none", "list:a.org", true},
		{"list:a.org", "", true},
		{"open", "", false},
		{"open", "open", true},
		{"list:a.org", "none", false},
		{"list:a.org", "list:a.org,b.org", true},
		{"list:a.org,c.org", "list:a.org,b.org", false},
		{"list:x.a.org", "list:*.a.org", true},
		{"list:*.x.a.org", "list:*.a.org", true},
		{"list:*.a.org", "list:*.a.org", true},
		{"list:a.org", "list:*.a.org", false},
		{"list:*.org", "list:*.a.org", false},
		{"list:a.org", "read_only:a.org", false},
		{"read_only:a.org", "read_only:a.org", true},
		{"read_only:a.org", "list:a.org", true},
		{"open", "list:a.org", false},
	} {
		if err := tt.asked.Within(tt.most); (err == nil) != tt.ok {
			t.Errorf("%q within %q: %v", tt.asked, tt.most, err)
		}
	}
}

// TestNetworkKind: the kind, the hosts, and whether calls are repeatable.
func TestNetworkKind(t *testing.T) {
	for n, want := range map[sandbox.Network]struct {
		kind  string
		hosts []string
		again bool
	}{
		"":                   {"", nil, true}, // in logs without a network
		sandbox.NetworkNone:  {"none", nil, true},
		sandbox.NetworkOpen:  {"open", nil, false},
		"list:a.org,b.org":   {"list", []string{"a.org", "b.org"}, false},
		"read_only:a.org":    {"read_only", []string{"a.org"}, true},
		"of a later release": {"of a later release", nil, false},
	} {
		if n.Kind() != want.kind || !slices.Equal(n.Hosts(), want.hosts) || n.Repeatable() != want.again {
			t.Errorf("%q is of kind %q with hosts %q, again: %t", n, n.Kind(), n.Hosts(), n.Repeatable())
		}
	}
}

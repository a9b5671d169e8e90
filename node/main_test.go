package node

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/natstest"
	"github.com/rathcluster/rath/sandbox/local"
)

// asNode makes this test binary a node, for tests that need a process, or a
// router if it says so.
const asNode = "RATH_TEST_AS_NODE"

func TestMain(m *testing.M) {
	local.Reexec()
	switch os.Getenv(asNode) {
	case "":
	case "router":
		os.Exit(Execute(os.Args[1:], &Options{Routing: RouteOnly}))
	case "bound":
		os.Exit(Execute(os.Args[1:], &Options{Workflows: []flow.Registration{interrupted()}}))
	default:
		os.Exit(Execute(os.Args[1:], nil))
	}
	natstest.Main(m)
}

// TestMainComplains holds that a program which ends at once says so under its
// own name, once.
func TestMainComplains(t *testing.T) {
	tests := []struct {
		name    string
		routing Routing
		args    []string
		env     map[string]string
		code    int
		begins  string
	}{
		{"node starts", RouteHere, []string{"-slots", "-1"}, nil, 5, "node: -1 slots"},
		{"router starts", RouteOnly, []string{"-slots", "-1"}, nil, 5, "router: -1 slots"},
		{"argument of a node", RouteHere, []string{"now"}, nil, 2, `node: unexpected argument "now"`},
		{"argument of a router", RouteOnly, []string{"now"}, nil, 2, `router: unexpected argument "now"`},
		{"gossip of a router", RouteOnly, []string{"-join", "10.0.0.2"}, nil, 2, "router: gossip needs an address"},
		{"environment of a node", RouteHere, nil, map[string]string{"RATH_ROUTERS": "some"}, 2, `node: RATH_ROUTERS: "some" is neither`},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var said bytes.Buffer
			code := runMain(tc.args, func(name string) string { return tc.env[name] }, nil, nil, &said, &Options{Routing: tc.routing})
			if code != tc.code || !strings.HasPrefix(said.String(), tc.begins) {
				t.Errorf("it ends with %d and says %q, want %d and %q", code, said.String(), tc.code, tc.begins)
			}
		})
	}
}

package node

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/platform/scratch"
	"github.com/rathcluster/rath/internal/testkit/mcptest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/sandbox/docker"
	"github.com/rathcluster/rath/sandbox/local"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// asNode makes this test binary a node, for tests that need a process, or a router if
// its value is "router".
const asNode = "RATH_TEST_AS_NODE"

func TestMain(m *testing.M) {
	mcptest.Main()
	docker.Reexec()
	local.Reexec()
	scratch.InMemory()
	switch os.Getenv(asNode) {
	case "":
	case "router":
		os.Exit(Execute(os.Args[1:], &Options{Fleet: Fleet{Routing: RouteOnly}}))
	case "bound":
		os.Exit(Execute(os.Args[1:], &Options{Workflows: []flow.Registration{interrupted()}}))
	case "starts":
		os.Exit(Execute(os.Args[1:], &Options{Workflows: looping()}))
	case "talks":
		os.Exit(Execute(os.Args[1:], &Options{Workflows: talking()}))
	case "limits":
		os.Exit(Execute(os.Args[1:], &Options{Workflows: limited()}))
	case "jobs":
		os.Exit(Execute(os.Args[1:], &Options{Workflows: jobs()}))
	case "events":
		os.Exit(Execute(os.Args[1:], &Options{Workflows: payments()}))
	case "quotas":
		os.Exit(Execute(os.Args[1:], new(metered())))
	case "commands":
		os.Exit(Execute(os.Args[1:], &Options{Workflows: []flow.Registration{commands()}}))
	default:
		os.Exit(Execute(os.Args[1:], nil))
	}
	// Parallel tests wait for periods and deadlines more than they compute: too many
	// fleets would keep each other's relays from reporting in time that they live.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	natstest.Main(m)
}

// commands is a workflow that runs its input as a shell command in the session's
// sandbox.
func commands() flow.Registration {
	return flow.Registration{Name: "commands", Revision: "1", Description: "Runs a command.", NewFor: func(o flow.Info) (flow.Workflow, error) {
		var cmd string
		if err := json.Unmarshal(o.Input, &cmd); err != nil {
			return nil, err
		}
		shell, _ := tool.ByName(tool.RunShellCommand)
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			s, r, err := flow.CallTool(ctx, s, shell, map[string]string{"cmd": cmd})
			if err == nil && r.IsError {
				err = fmt.Errorf("the command: %s", r.Body)
			}
			return s, err
		}), nil
	}}
}

// TestDefaultModel: RATH_MODEL is the model of tasks that name none, unless a flag is
// set.
func TestDefaultModel(t *testing.T) {
	env := func(name string) string { return map[string]string{"RATH_MODEL": "slow"}[name] }
	for want, args := range map[string][]string{"slow": nil, "fast": {"-model", "fast"}, "": {"-model", ""}} {
		if o, err := options(args, env, io.Discard, &Options{}); err != nil || o.Models.Default != want {
			t.Errorf("%q: the default model is %q, want %q; error %v", args, o.Models.Default, want, err)
		}
	}
}

// TestMainComplains checks that a program which ends at once prints the reason under
// its own name, once.
func TestMainComplains(t *testing.T) {
	taken := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
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
		{"port in use", RouteHere, []string{"-port", port, "-store", t.TempDir()}, nil, 4, "node: "},
		{"argument of a node", RouteHere, []string{"now"}, nil, 2, `node: unexpected argument "now"`},
		{"argument of a router", RouteOnly, []string{"now"}, nil, 2, `router: unexpected argument "now"`},
		{"gossip of a router", RouteOnly, []string{"-join", "10.0.0.2"}, nil, 2, "router: gossip needs an address"},
		{"sandboxes of no server", RouteHere, []string{"-port", "0", "-store", t.TempDir()}, map[string]string{"RATH_SANDBOX_OPENSANDBOX_URL": "sandboxes"}, 5, `node: sandboxes of the server sandboxes: opensandbox: the URL "sandboxes" of the server is no address`},
		{"environment of a node", RouteHere, nil, map[string]string{"RATH_ROUTERS": "some"}, 2, `node: RATH_ROUTERS: "some" is neither`},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var said bytes.Buffer
			code := runMain(tc.args, func(name string) string { return tc.env[name] }, nil, nil, &said, &Options{Fleet: Fleet{Routing: tc.routing}})
			if code != tc.code || !strings.HasPrefix(said.String(), tc.begins) {
				t.Errorf("it ends with %d and says %q, want %d and %q", code, said.String(), tc.code, tc.begins)
			}
		})
	}
}

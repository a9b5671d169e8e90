// Package node is an embeddable Rath node: it runs your workflows as `rath node` runs
// the built-in ones.
//
//	func main() {
//		node.Main(flow.Registration{
//			Name: "review", Revision: "1", Description: "Reviews a change.",
//			New: func() flow.Workflow { return &Review{} },
//		})
//	}
//
// A node takes tasks from NATS, runs their workflows and keeps their sessions.
// Without the address of a NATS server it starts one of its own in this
// process, over a directory: that is all a laptop needs. The package only
// wires other packages together.
package node

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/sandbox/egress"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/docker"
	"github.com/rathcluster/rath/sandbox/kubernetes"
	"github.com/rathcluster/rath/sandbox/opensandbox"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// DefaultStore is the directory that a node with a server of its own uses.
const DefaultStore = ".rath"

// Options configure a node. The zero Options are a node of its own over DefaultStore.
type Options struct {
	// Dev is the directory of the store of a running `rath dev` of this user and
	// machine, which the node joins. The servers' address, login, durability and disk and
	// the gossip come from there, and the fields for them are not used. Without Store
	// the node keeps its own files below Dev. Without Fleet.Pool, a program with workflows
	// of its own is a pool of its program's name and offers only these.
	Dev string
	// Name is the node's stable name, such as its pod's; "" is its incarnation.
	Name string
	// Store is the directory of this node: the embedded server's files,
	// sandboxes; "" is DefaultStore.
	Store string
	// SigningKey is the file of the private key with which this node signs the results
	// of ended runs, in a form that ssh-keygen writes. "" is the file signing_key in the
	// store of a node with a server of its own, generated at the first start; the key
	// of the `rath dev` that the node joins; and no signature with other external
	// servers.
	SigningKey string
	// Idle keeps the node from taking tasks: it only answers questions and control
	// requests about stored sessions.
	Idle bool
	// Workflows are offered besides the built-in "agent", "fork" and "merge", and
	// besides "auto" and "fanout", which Fleet.Routing places.
	Workflows []flow.Registration
	// Tools are offered to tasks of the workflow "agent", in addition to the built-in
	// ones.
	Tools []tool.Tool
	// MCPList is a file with the MCP servers that tasks and agents name; see
	// docs/mcp.md for the format. "" is none.
	MCPList string
	// Rules is a file with the rules that decide which calls of models run, which need an
	// approval, and which are refused; see docs/rules.md for the format. "default" has the
	// default rules, and "" lets all calls run that the task does not want approved.
	Rules string
	// Agents is a directory of agents in files: each file NAME.md is a workflow, and a tool
	// of the agents whose tasks name it; see docs/agents.md for the format. "" is none.
	Agents string
	// Checks is a file with commands that run after a model has edited files, and whose
	// output is added to the result; see docs/tools.md for the format. "" is none.
	Checks string
	// Targets is a file with the targets of notifications, and the rules that choose their
	// events; see docs/notify.md for the format. "" is none. Routers send none.
	Targets string
	// Memory opens a named memory for the runs of a tenant, each time that a step uses
	// one; nil uses one for all nodes of the fleet, in its streams.
	Memory func(ctx context.Context, t session.Tenant, name string) (memory.Store, error)
	// Slots bounds the runs that execute concurrently; 0 is 64.
	Slots int
	// Drain bounds how long a stopping node waits for the steps in progress, such as a
	// model call; 0 is 20 s. Its runs resume elsewhere, or at the next start.
	Drain time.Duration
	// OnWarning receives warnings for the authors of workflows; nil discards them.
	OnWarning func(run.ID, string)
	// Logger logs background events; nil discards them.
	Logger *slog.Logger
	// Env looks up environment variables; nil is an empty environment.
	Env func(string) string

	NATS    NATS
	Fleet   Fleet
	Models  Models
	Sandbox Sandbox
	HTTP    HTTP

	world egress.Options // of tests: where hosts are
}

// NATS names the servers that store a node's data. The zero NATS is a server in the
// node's process, over Options.Store.
type NATS struct {
	// URL names external servers; "" starts one in this process. Start waits for
	// external servers that cannot be reached yet until its context ends: a node may
	// start before they do.
	URL string
	// User and Password, or CredsFile, log in at external servers.
	User, Password, CredsFile string
	// RootCAs is a PEM file of the certificate authorities of external servers;
	// with it, or with a URL of scheme tls, the connection is encrypted.
	RootCAs string
	// Port makes the embedded server listen on 127.0.0.1; 0 listens on no
	// socket, -1 picks a free port.
	Port int
	// Private makes the embedded server refuse clients without credentials.
	Private bool
	// Level is the durability to promise: "fsync", "replicated" or "lazy"; ""
	// is fsync.
	Level string
	// Replicas of each stream on external servers; 0 is 1.
	Replicas int
	// Monitor are the external servers' monitoring addresses, asked whether
	// they sync every write.
	Monitor []string
	// Disk is a directory on the disk where external servers of this machine store: the
	// node keeps a reserve there, as it does on the disk of a server of its own. ""
	// means that the servers are elsewhere, or keep a reserve themselves.
	Disk string
}

// Fleet is a node's place among the other nodes.
type Fleet struct {
	// Pool is the set of workflows that this node belongs to: the nodes of one pool
	// offer the same workflows. "" is "default", or RouterPool for a router.
	Pool string
	// Routing selects the nodes that run the workflows "auto" and "fanout".
	Routing Routing
	// Gossip makes the node a member of a fleet: the nodes detect each other's death,
	// so that the runs of a dead node resume elsewhere within seconds. Otherwise that
	// takes until a relay asks the dead node in vain. nil is a node without gossip.
	Gossip *Gossip
	// Deaths returns how a node of this fleet ended, by its incarnation: its exit and
	// its last output. It returns "" for a live node and for a node that this process
	// did not start. A run that ended its nodes repeatedly records the text. Deaths may
	// be called concurrently. nil is a process that starts no nodes.
	Deaths func(incarnation string) string
}

// Models are the models that a node calls.
type Models struct {
	// Source answers model calls; nil is DefaultModels of the environment.
	Source llm.Models
	// Default is the model of tasks that name none; "" is the environment's.
	Default string
	// List is a file with the models that agents and tasks name: servers, keys by
	// reference, prices, fallbacks. See docs/models.md for the format. With a list, a
	// name that is missing from it is an error. "" is no list: names are those of the
	// server that the environment names.
	List string
}

// Sandbox configures the sandboxes of a node. The zero Sandbox is the backend "local" with
// its confinement.
type Sandbox struct {
	// Unsafe accepts sandboxes that only separate processes, for commands that
	// a model chooses.
	Unsafe bool
	// Limits bound the resources of each sandbox. A node does not start if none
	// of its backends can enforce all of them; a backend that cannot enforce them opens
	// no sandboxes. Without a limit of disk, the limit is four times the bytes of the
	// largest workspace, where the backend can enforce it.
	Limits sandbox.Limits
	// Network is the widest network that a task can request: "none", "open", or
	// the hosts of "list:" and "read_only:"; "" is any list of hosts.
	Network sandbox.Network
	// Secrets are headers that the proxy of a sandbox puts into requests, one of
	// each line: [TENANT@]HOST HEADER: VALUE, where ${NAME} in the value is the variable
	// NAME of the environment. Commands never see them.
	Secrets string
	// Private are the ranges of private addresses that the hosts of a list may
	// have, such as 10.1.0.0/16; without them hosts are on the Internet only.
	Private []netip.Prefix
	// Docker makes the node offer the backend "docker", if it names an image: containers
	// of the Docker engine of this machine. The engine must have the image. The program is
	// linked statically. The node sets State and Logger.
	Docker docker.Options
	// Kubernetes makes the node offer the backend "kubernetes", if it names an
	// image: pods of a cluster, by default of the one that the node runs in.
	Kubernetes kubernetes.Options
	// OpenSandbox makes the node offer the backend "opensandbox", if it names a URL:
	// sandboxes of the server there. The program is linked statically.
	OpenSandbox opensandbox.Options
	// Backends are backends besides "local", "docker", "kubernetes" and "opensandbox".
	// A backend that is a sandbox.Sweeper is swept before the node serves, and
	// repeatedly while it does.
	Backends map[string]sandbox.Backend
}

// HTTP has the addresses of a node's HTTP endpoints. A port alone, or an address without a
// host, is reachable from this machine only.
type HTTP struct {
	// Health is the address of the endpoints /livez; /readyz; /waiting, the waiting runs
	// for autoscalers; and /metrics, for Prometheus. "" is none. A node that waits for its
	// servers is alive and not ready.
	Health string
	// Web is the address of the pages and of the API; "" serves neither. Routers and a node
	// with a server of its own can serve them.
	Web string
	// URL is the address under which browsers reach Web; "" is Web itself, on this machine.
	// Off this machine it is https, unless Insecure.
	URL      string
	Insecure bool
	// Origins are the origins of other sites whose scripts may use the API.
	Origins []string
	// User is the user of the tenant "default" that logs in with a code, see LoginURL; then a port in use is replaced by a free one. "" makes no codes.
	User string
	// Gateways is the directory with the credentials of the web for each tenant, of the
	// role gateway: TENANT.creds, TENANT.nkey or TENANT.login. "" uses those of the node,
	// which suffice on a server without users.
	Gateways string
	// OIDC is a file with the OpenID Connect provider whose identities log in; see
	// docs/access.md for the format. "" is none.
	OIDC string
}

// Package node is an embeddable Rath node: what `rath node` runs,
// with your workflows in it.
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
	"github.com/rathcluster/rath/sandbox/kubernetes"
	"github.com/rathcluster/rath/sandbox/opensandbox"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// DefaultStore is the directory that a node with a server of its own uses.
const DefaultStore = ".rath"

// Options say what a node works with. The zero Options are a node of its own
// over DefaultStore.
type Options struct {
	// Dev is the directory of the store of a running `rath dev` of this user and
	// machine, which the node joins: its address, how to log in there, the durability,
	// the disk and gossip are taken from there, and the fields for them are not used.
	// Without Store the node keeps its own files below Dev. Without Pool, a program with
	// workflows of its own is a pool of its program's name and offers these alone.
	Dev string
	// NATS names external servers; "" starts one in this process. Start waits for
	// external servers that cannot be reached yet until its context ends: a node may
	// start before they do.
	NATS string
	// User and Password, or CredsFile, log in at external servers.
	User, Password, CredsFile string
	// RootCAs is a PEM file of the certificate authorities of external servers;
	// with it, or with a URL of scheme tls, the connection is encrypted.
	RootCAs string
	// Disk is a directory on the disk where external servers of this machine store:
	// the node keeps a reserve there, as it does on the disk of a server of its own.
	// "" is that they are elsewhere, or keep one themselves.
	Disk string
	// Monitor are the external servers' monitoring addresses, asked whether
	// they sync every write.
	Monitor []string
	// Level is the durability to promise: "fsync", "replicated" or "lazy"; ""
	// is fsync.
	Level string
	// Replicas of each stream on external servers; 0 is 1.
	Replicas int

	// SigningKey is the file of the private key with which this node signs the results
	// of ended runs, in a form that ssh-keygen writes. "" is signature.StoreFile in the
	// store of a node with a server of its own, made at the first start, that of the
	// `rath dev` that it joins, and with other external servers no signature.
	SigningKey string

	// Name is the node's stable name, such as its pod's; "" is its incarnation.
	Name string
	// Pool is the set of workflows that this node belongs to: the nodes of one
	// pool offer the same ones. "" is dispatch.DefaultPool, or RouterPool for a
	// router.
	Pool string
	// Routing says which nodes run the workflows "auto" and "fanout".
	Routing Routing
	// Gossip makes the node a member of a fleet: the nodes tell each other which of
	// them live, so that the runs of one that dies go on elsewhere within seconds;
	// otherwise that takes until a relay asks the dead node in vain. nil is a node by
	// itself.
	Gossip *Gossip

	// Store is the directory of this node: the embedded server's files,
	// sandboxes; "" is DefaultStore.
	Store string
	// Port makes the embedded server listen on 127.0.0.1; 0 listens on no
	// socket, -1 picks a free port.
	Port int

	// Idle keeps the node from taking tasks: it only answers questions and
	// control requests about what the store holds.
	Idle bool
	// Workflows are offered besides the built-in "agent", "fork" and "merge",
	// and "auto" and "fanout" as Routing says.
	Workflows []flow.Registration
	// Tools may be named by tasks for the workflow "agent", besides the
	// built-in ones.
	Tools []tool.Tool
	// Models answers model calls; nil is DefaultModels of the environment.
	Models llm.Models
	// Model is the default model.
	Model string
	// ModelList is a file with the models that agents and tasks name: servers, keys by
	// reference, prices, fallbacks; docs/models.md says how it is written. With a list a
	// name that it does not have is an error. "" is none: names are those of the server
	// that the environment names.
	ModelList string
	// MCPList is a file with the MCP servers that tasks and agents name; docs/mcp.md says how
	// it is written. "" is none.
	MCPList string
	// Memory opens the memory of a name for the runs of a tenant, each time that a step
	// uses one; nil is one for all nodes of the fleet, in its streams.
	Memory func(ctx context.Context, t session.Tenant, name string) (memory.Store, error)
	// Slots bounds the runs that execute at once; 0 is 64.
	Slots int
	// Unsafe accepts sandboxes that only separate processes, for commands that
	// a model chooses.
	Unsafe bool
	// SandboxLimits bound what each sandbox may use. A node of whose backends none can
	// enforce all of them does not start; one that cannot opens none. Without a limit of disk, where that can be
	// enforced, it is four times the bytes of the largest workspace.
	SandboxLimits sandbox.Limits
	// SandboxImage makes the node offer the backend "docker": containers of the Docker
	// engine of this machine (DOCKER_HOST), of this image where a task names no other.
	// The engine must have the image. "" offers none. The program is linked statically.
	SandboxImage string
	// SandboxRuntime is the engine's runtime for them, such as runsc; "" is its default.
	SandboxRuntime string
	// SandboxWarm is how many containers wait for sandboxes of each image and limits that
	// were opened; 0 is none. One that waits spares a session a tenth of a second and more.
	SandboxWarm int
	// SandboxKubernetes makes the node offer the backend "kubernetes", if it names an
	// image: pods of a cluster, by default of the one that the node runs in.
	SandboxKubernetes kubernetes.Options
	// OpenSandbox makes the node offer the backend "opensandbox": sandboxes of the server
	// that it names. nil offers none. The program is linked statically.
	OpenSandbox *opensandbox.Options
	// SandboxNetwork is the most that a task can ask for of the network: "none",
	// "open", or the hosts of "list:" and "read_only:"; "" is any list of hosts.
	SandboxNetwork sandbox.Network
	// SandboxSecrets are headers that the proxy of a sandbox puts into requests, one of
	// each line: [TENANT@]HOST HEADER: VALUE, where ${NAME} in the value is the variable
	// NAME of the environment. Commands never see them.
	SandboxSecrets string
	// SandboxPrivate are ranges of private addresses that the hosts of a list may be at,
	// such as 10.1.0.0/16; without them hosts are on the Internet alone.
	SandboxPrivate []netip.Prefix
	world          egress.Options // of tests: where hosts are
	// Sandboxes are backends besides "local", "docker", "kubernetes" and "opensandbox". One
	// that is a sandbox.Sweeper is swept before the node serves, and beside.
	Sandboxes map[string]sandbox.Backend
	// Drain bounds how long a stopping node waits for the steps under way, such
	// as a model call; 0 is 20 s. Its runs go on elsewhere, or at the next start.
	Drain time.Duration
	// Health is the address of the HTTP endpoints /livez, /readyz, /waiting, which
	// tells autoscalers what waits, and /metrics, which Prometheus reads; without a host it is this machine only, ""
	// is none. A node that waits for its servers is alive and not
	// ready.
	Health string
	// HTTP is a second address, written like Health, that answers /livez and /readyz
	// alone: routers have one that a service reaches. "" is none.
	HTTP string
	// Deaths returns how a node of this fleet ended that this process started, by its
	// incarnation: its exit and the last that it wrote, "" for one that lives or that this
	// process does not know. The runs that such a node executed record it if it ended with
	// them again and again. It may be called at the same time.
	Deaths func(incarnation string) string
	// OnWarning gets what authors of workflows should know.
	OnWarning func(run.ID, string)
	// Logger receives what happens in the background; nil discards it.
	Logger *slog.Logger
	// Env looks up environment variables; nil is an empty environment.
	Env func(string) string
}

package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/openai"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/docker"
	"github.com/rathcluster/rath/sandbox/kubernetes"
	"github.com/rathcluster/rath/sandbox/local"
	"github.com/rathcluster/rath/sandbox/opensandbox"
)

// Doctor is the command "doctor".
func Doctor(a *app.App) *cobra.Command {
	var model bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this installation: sandbox, store, nodes, model",
		Long: `Checks this installation, with a remedy for each failure: the confinement of
commands, access to the store and its durability, the nodes and workflows, and
with --model the model. It also checks the configured sandboxes in containers,
pods or on an OpenSandbox server. In a Kubernetes pod it also checks the memory
and the directories of the pod.

"doctor config" shows every setting and its source, "doctor completion" writes a
completion script for a shell.

Exit code 6 if a check fails.`,
		Example: `  rath doctor
  rath doctor --model
  rath doctor --format json`,
		Args: app.NoSubcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return doctor(cmd.Context(), a, model) },
	}
	cmd.Flags().BoolVar(&model, "model", false, "also request one word from the model")
	cmd.AddCommand(showConfiguration(a), completion(a))
	return cmd
}

// finding is the result of one check.
type finding struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"`
}

func doctor(ctx context.Context, a *app.App, model bool) error {
	all := []finding{
		{Check: "rath", OK: true, Found: node.Version() + ", " + runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH},
		checkConfig(a),
	}
	all = append(all, checkSandbox(ctx)...)
	all = append(all, checkContainers(ctx, a))
	all = append(all, checkPods(ctx, a)...)
	all = append(all, checkService(ctx, a)...)
	if a.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		all = append(all, checkPod("/"))
	}
	system, elsewhere := checkSystem(ctx, a)
	all = append(all, system...)
	all = append(all, checkModel(ctx, a, model, elsewhere))
	bad := 0
	for _, f := range all {
		if !f.OK {
			bad++
		}
	}
	done, err := app.Emit(a, all)
	if err != nil {
		return err
	}
	if !done {
		for _, f := range all {
			mark := a.Out.Paint(term.Green, "ok  ")
			if !f.OK {
				mark = a.Out.Paint(term.Red, "BAD ")
			}
			a.Out.Println(mark + " " + term.Pad(f.Check, 11) + " " + f.Found)
			if f.Remedy != "" {
				for _, l := range term.Wrap(f.Remedy, 63) {
					a.Out.Println(a.Out.Dim("                 " + l))
				}
			}
		}
	}
	if bad > 0 {
		return app.Silent(app.ExitPartial)
	}
	return nil
}

func checkConfig(a *app.App) finding {
	if a.Config.File == "" {
		return finding{Check: "config", OK: true, Found: "defaults and environment"}
	}
	return finding{Check: "config", OK: true, Found: a.Config.File}
}

func checkSandbox(ctx context.Context) []finding {
	f := finding{Check: "sandbox"}
	c, err := local.New(nil).Probe(ctx)
	if err != nil {
		f.Found, f.Remedy = messages.Text(err), "commands of agents cannot run here"
		return []finding{f}
	}
	f.OK, f.Found = true, fmt.Sprintf("%s (%s)", c.Isolation, c.Detail)
	if c.Isolation == sandbox.IsolationProcess {
		f.Remedy = "commands are not confined here: a command from a model runs only with --unsafe. Linux with Landlock (5.13 or later) confines commands"
	}
	if !slices.Contains(c.Programs, "sh") {
		f.Found += "; no shell"
		f.Remedy = strings.TrimPrefix(f.Remedy+". each command of an agent fails: use an image with a shell, in the chart image.flavor: tools", ". ")
	}
	limits := finding{Check: "limits", OK: true, Found: "of sandboxes: " + strings.Join(c.Limits, ", ")}
	if len(c.Limits) == 0 {
		limits.Found = "of sandboxes: none"
	}
	network := finding{Check: "network", OK: true, Found: "of sandboxes: listed hosts, services"}
	if !slices.Contains(c.Networks, sandbox.NetworkList) {
		network.Found = "of sandboxes: " + strings.Join(c.Networks, ", ") + "; listed hosts and services need network namespaces"
	}
	return []finding{f, limits, network}
}

// checkContainers checks the backend "docker", if an image is configured.
func checkContainers(ctx context.Context, a *app.App) finding {
	f := finding{Check: "docker"}
	if a.Config.Image.Value == "" {
		f.OK, f.Found = true, "not offered: sandbox_image names no image"
		return f
	}
	dir, err := os.MkdirTemp("", "rath-doctor-")
	if err != nil {
		f.Found = messages.Text(err)
		return f
	}
	defer os.RemoveAll(dir)
	c, err := docker.New(&docker.Options{State: dir, Image: a.Config.Image.Value, Runtime: a.Config.Runtime.Value}).Probe(ctx)
	if err != nil {
		f.Found, f.Remedy = term.Line(messages.Text(err), 300), "nodes here do not start while sandbox_image names an image"
		return f
	}
	f.OK, f.Found = true, fmt.Sprintf("%s, image %s", c.Isolation, term.Line(a.Config.Image.Value, 300))
	f.Remedy = c.Detail + "; limits " + strings.Join(c.Limits, ", ")
	return f
}

// checkPods checks the backend "kubernetes", if an image is configured.
func checkPods(ctx context.Context, a *app.App) []finding {
	o := node.PodOptions(a.Getenv)
	if o.Image == "" {
		return nil
	}
	found, err := kubernetes.Check(ctx, o)
	return []finding{checked("kubernetes", found, err)}
}

// checkService checks the backend "opensandbox", if a server is configured.
func checkService(ctx context.Context, a *app.App) []finding {
	o := a.Config.OpenSandbox()
	if o.URL == "" {
		return nil
	}
	found, err := opensandbox.Check(ctx, o)
	return []finding{checked("opensandbox", found, err)}
}

// checked returns the finding about a backend.
func checked(name, found string, err error) finding {
	if err != nil {
		return finding{Check: name, Found: "nodes with these settings do not start", Remedy: term.Line(messages.Text(err), 600)}
	}
	return finding{Check: name, OK: true, Found: "offered", Remedy: found}
}

// checkSystem opens the system of the other commands, and reports whether its nodes are
// other processes, which have settings of their own.
func checkSystem(ctx context.Context, a *app.App) (out []finding, elsewhere bool) {
	where := finding{Check: "system"}
	s, err := a.OpenThere(ctx, &node.Options{Idle: true})
	if unseen(err) {
		where.OK, where.Found = true, a.Config.Server.Value+" accepts these credentials"
		return []finding{where, unasked()}, true
	}
	if err != nil {
		if !a.Ambient() && a.StoreThere() != nil {
			return []finding{{Check: "store", OK: true, Found: "none at " + a.Config.Store.Value + " yet", Remedy: "\"demo\" or \"run\" makes one"}}, false
		}
		where.Found, where.Remedy = term.Line(messages.Text(err), 300), systemRemedy(a)
		return []finding{where}, a.Ambient()
	}
	where.OK, where.Found = true, s.Where
	if s.Level != "" {
		where.Found += ", log " + s.Level
	}
	out = []finding{where}
	ws, err := s.Workflows(ctx)
	ns, nodesErr := s.Fleet.Nodes(ctx)
	seen := nodesErr == nil && !s.Own()
	switch {
	case unseen(err):
		out = append(out, unasked())
	case err != nil:
		out = append(out, finding{Check: "workflows", Found: term.Line(messages.Text(err), 300), Remedy: "start a node: \"dev\", or the node of your module"})
	default:
		out = append(out, checkWorkflows(ws, ns, seen))
	}
	if s.Stores != nil {
		out = append(out, checkStores(ctx, s))
	}
	if seen {
		out = append(out, checkNodes(ns), checkPrograms(ns), checkModels(ns))
		out = append(out, checkGaps(ns)...)
		for i := range ns {
			for _, f := range ns[i].Full {
				out = append(out, finding{Check: "room", Found: "node " + ns[i].Name + ", " + f.Stream + ": " + term.Line(view.CapacityText(f), 300)})
			}
		}
	}
	if err := s.Close(); err != nil {
		out = append(out, finding{Check: "close", Found: term.Line(messages.Text(err), 300)})
	}
	return out, !s.Own()
}

// unseen reports whether these credentials may not read an answer because they are no
// client's but, for example, a node's: nodes answer questions and ask none. The server
// rejects the question and the inbox for its answer, in either order.
func unseen(err error) bool {
	e, ok := errors.AsType[*conn.PermissionError](err)
	return ok && len(e.Tenants) == 0 && (strings.HasPrefix(e.Subject, messages.QueryPrefix) || strings.HasPrefix(e.Subject, "_INBOX."))
}

// unasked returns the finding about nodes and workflows that cannot be requested.
func unasked() finding {
	return finding{
		Check: "workflows", OK: true, Found: "these credentials may not ask, such as those of a node",
		Remedy: "nodes, workflows and models are checked with an operator's or a client's credentials, in the chart those of the toolbox",
	}
}

// systemRemedy returns the remedy if the system cannot be asked.
func systemRemedy(a *app.App) string {
	if a.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		return "see \"help exit-codes\"; --server, --context and --store choose another system"
	}
	return "in the chart: nats.url is the address, nats.auth and operator.auth name the secrets of the credentials, " +
		"nats.ca the secret of the authority, and networkPolicy.natsTo must permit this pod"
}

// storesFor bounds how long the check waits for a write.
const storesFor = 5 * time.Second

// checkStores checks that the system can store data, by a write.
func checkStores(ctx context.Context, s *app.System) finding {
	ctx, cancel := context.WithTimeout(ctx, storesFor)
	defer cancel()
	if err := s.Stores(ctx); err != nil {
		return finding{Check: "writes", Found: term.Line(messages.Text(err), 300), Remedy: "until writes work again, runs wait and no task is accepted"}
	}
	return finding{Check: "writes", OK: true, Found: "a test write succeeded"}
}

// checkModel checks the model that is set here; nodes elsewhere have their own.
func checkModel(ctx context.Context, a *app.App, ask, elsewhere bool) finding {
	f := finding{Check: "model", OK: true}
	key, base := a.Getenv(openai.EnvKey) != "", a.Getenv(openai.EnvBase)
	azure := ""
	if base == "" && a.Getenv(openai.EnvAzureEndpoint) != "" {
		base, azure = a.Getenv(openai.EnvAzureEndpoint), ", key in "+openai.EnvAzureKey
		if a.Getenv(openai.EnvAzureKey) == "" {
			azure += " (missing)"
		}
	}
	switch {
	case elsewhere && !key && base == "" && a.Config.Model.Value == "":
		f.Found = "none is set here; nodes have settings of their own"
		return f
	case !key && base == "" && a.Config.Model.Value == "":
		f.Found = "none: agents fail, workflows without a model and the demo work"
		f.Remedy = "set OPENAI_API_KEY, or OPENAI_BASE_URL and OPENAI_DEFAULT_MODEL for your own server; --model " + node.EchoModel + " repeats its input"
		return f
	case a.Config.Model.Value == node.EchoModel:
		f.Found = node.EchoModel + ": repeats its input"
		return f
	case base != "":
		f.Found = llm.Redact(base) + azure
	default:
		f.Found = openai.DefaultBaseURL
	}
	f.Found += ", model " + cmp.Or(a.Config.Model.Value, "not set")
	if !ask {
		return f
	}
	models, err := node.DefaultModels(a.Getenv, a.Config.Model.Value)
	if err == nil {
		var c llm.Client
		p := llm.Provider{Model: a.Config.Model.Value, MaxTokens: 16}
		if c, err = models.Client(ctx, p); err == nil {
			_, err = c.Complete(ctx, &llm.Request{Provider: p, Messages: []llm.Message{{Role: llm.User, Text: "Say ok."}}}, nil)
		}
	}
	if err != nil {
		f.OK, f.Remedy = false, term.Line(messages.Text(err), 400)
		return f
	}
	f.Found += ", answers"
	return f
}

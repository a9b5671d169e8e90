package ladder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/inprocess"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/nats/remotelog"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

// InProcess runs the example in this process, as a program does that uses workflows as a
// library, and returns its story. real names the model; "" is the script.
func (r Rung) InProcess(ctx context.Context, models llm.Models, real string, _ io.Writer) (string, error) {
	runner, s, err := r.inProcess(ctx, models, real)
	if err != nil {
		return "", err
	}
	return tell(ctx, runner.Lineage, runner.Blobs, s)
}

// Picture runs the example in this process and returns its graph as SVG.
func (r Rung) Picture(ctx context.Context, models llm.Models) (string, error) {
	runner, s, err := r.inProcess(ctx, models, "")
	if err != nil {
		return "", err
	}
	root := session.Key{Tenant: s.Key().Tenant, ID: s.Root()}
	g, err := graphOf(ctx, runner.Lineage, root)
	if err != nil {
		return "", err
	}
	p, err := g.Picture(root, &lineage.PictureOptions{Title: r.Name + ": " + r.Does})
	if err != nil {
		return "", err
	}
	return p.SVG(), nil
}

func (r Rung) inProcess(ctx context.Context, models llm.Models, real string) (runner *inprocess.Runner, s session.Session, err error) {
	dir, err := os.MkdirTemp("", r.Name+"-")
	if err != nil {
		return nil, s, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	input, err := json.Marshal(r.Input)
	if err != nil {
		return nil, s, err
	}
	w, err := r.New(flow.Info{Input: input, Model: r.model(real)})
	if err != nil {
		return nil, s, err
	}
	files, err := r.files(dir)
	if err != nil {
		return nil, s, err
	}
	list, err := Servers(dir, nil, r)
	if err != nil {
		return nil, s, err
	}
	runner = &inprocess.Runner{
		Models: models, Blobs: blob.NewMemory(), Dir: filepath.Join(dir, "work"),
		Sandboxes: map[string]sandbox.Backend{"local": local.New(&local.Options{State: filepath.Join(dir, "boxes")})},
		MCPList:   list,
		// The commands of a script are ours and may run without confinement. Commands of a real
		// model may not.
		Unsafe: real == "",
	}
	s, err = runner.Run(ctx, w, session.New().To("local", files))
	return runner, s, err
}

// files writes the files that the session begins with below dir, and returns where.
func (r Rung) files(dir string) (string, error) {
	parsed, err := scripted.Parse(r.Dir+"/model.txtar", r.Script)
	if err != nil {
		return "", err
	}
	files := filepath.Join(dir, "files")
	if err := os.Mkdir(files, 0o700); err != nil {
		return "", err
	}
	_, err = parsed.WriteFiles(files)
	return files, err
}

// Submit runs the example with a client, as a task with the given run id for nodes that
// offer it, and returns its story. It writes the pieces of the answer to out as they
// arrive, if out is not nil.
func (r Rung) Submit(ctx context.Context, c *client.Client, id run.ID, real string, out io.Writer) (story string, err error) {
	task := messages.Task{ID: id, Model: r.model(real), Sandbox: messages.Sandbox{Backend: "local"}}
	if task.Input, err = json.Marshal(r.Input); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", r.Name+"-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	files, err := r.files(dir)
	if err != nil {
		return "", err
	}
	in, err := workspace.Import(ctx, c.Blobs(), files, nil)
	if err != nil {
		return "", err
	}
	task.Workspace = in.Head.String()
	result, err := c.Do(ctx, r.Name, task, func(u client.Update) {
		if u.Delta != nil && out != nil && u.Delta.Text != "" {
			fmt.Fprintf(out, "%s: %q\n", u.Delta.Agent, u.Delta.Text)
		}
	})
	if err == nil {
		err = result.Err()
	}
	if err != nil {
		return "", err
	}
	ref := session.Ref{Key: session.Key{Tenant: c.Tenant(), ID: result.Session}, Version: result.Version}
	log := remotelog.Of(c)
	s, err := journal.NewValues(log).At(ctx, ref)
	if err != nil {
		return "", err
	}
	return tell(ctx, func(ctx context.Context, k session.Key) ([]messages.Record, error) { return recordsIn(ctx, log, k) }, c.Blobs(), s)
}

// atNode runs the example on a node in this process, for features that need one: the
// updates that clients get before the end.
func (r Rung) atNode(ctx context.Context, models llm.Models, real string, out io.Writer) (story string, err error) {
	dir, err := os.MkdirTemp("", r.Name+"-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	n, err := node.Start(ctx, &node.Options{
		Store: filepath.Join(dir, "store"), Models: node.Models{Source: models}, Sandbox: node.Sandbox{Unsafe: real == ""},
		Workflows: []flow.Registration{r.Registration()},
	})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	c, err := n.Client(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if !r.Streams {
		out = nil
	}
	return r.Submit(ctx, c, "", real, out)
}

// Servers writes the list of the examples' MCP servers to dir and returns its name, or ""
// if they have none. A server is this program again, after the words of prefix.
func Servers(dir string, prefix []string, rs ...Rung) (file string, err error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	var text strings.Builder
	text.WriteString("servers:\n")
	for _, r := range rs {
		if r.Server == nil {
			continue
		}
		command, err := json.Marshal(append(prefix[:len(prefix):len(prefix)], exe, serve, r.Name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&text, "  %s:\n    where: host\n    command: %s\n", r.Name, command)
		file = filepath.Join(dir, "mcp.yaml")
	}
	if file == "" {
		return "", nil
	}
	return file, os.WriteFile(file, []byte(text.String()), 0o600)
}

package start

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/agents/mcp"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
	"github.com/rathcluster/rath/tool"
)

// MCP is the command "mcp".
func MCP(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "mcp",
		Short:   "List, test, add and sign in to MCP servers",
		Long:    "Shows, tests and extends the list of MCP servers in the file of \"mcp\"\n(RATH_MCP). docs/mcp.md describes the list.",
		Example: "  rath mcp ls\n  rath mcp test files\n  rath mcp add files -- mcp-server-filesystem .\n  rath mcp login tickets",
		Args:    app.NoSubcommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(mcpLs(a), mcpTest(a), mcpAdd(a), mcpLogin(a))
	return cmd
}

// mcpFlag adds the flag that names another list.
func mcpFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "mcp", "", "file with the list, instead of the configured one")
}

// serverList reads the list of a file, or the configured one.
func serverList(a *app.App, file string) (*mcp.List, error) {
	if file = cmp.Or(file, a.Config.MCP.Value); file == "" {
		return nil, app.Fail(app.ExitUsage, "there is no list of MCP servers: name its file by --mcp, RATH_MCP, or \"mcp\" in the configuration file; \"rath mcp add\" makes one")
	}
	l, err := mcp.Read(file)
	if err != nil {
		return nil, app.WithCode(app.ExitUsage, err)
	}
	return l, nil
}

// serverRow is a server as programs read it.
type serverRow struct {
	Name    string   `json:"name"`
	Where   string   `json:"where,omitempty"`
	Command []string `json:"command,omitempty"`
	URL     string   `json:"url,omitempty"`
	Token   string   `json:"token,omitempty"` // the reference
	OAuth   string   `json:"oauth,omitempty"` // see mcp.Server.SignIn
	Env     []string `json:"env,omitempty"`
	Tools   []string `json:"tools,omitempty"`
}

func mcpLs(a *app.App) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List the MCP servers for tasks and agents",
		Long:    "Lists the servers of the list: the place, the command or address, and the\npermitted tools of each.",
		Example: "  rath mcp ls\n  rath mcp ls --mcp mcp.yaml --format jsonl",
		Args:    app.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			l, err := serverList(a, file)
			if err != nil {
				return err
			}
			all := []serverRow{}
			rows := [][]string{}
			for _, s := range l.All() {
				all = append(all, serverRow{s.Name, s.Where, s.Command, s.URL, s.Token, s.SignIn(), s.Env, s.Tools})
				tools := "all"
				if s.Tools != nil {
					tools = strings.Join(s.Tools, ",")
				}
				where := cmp.Or(s.Where, "remote")
				if how := s.SignIn(); how != "" {
					where += ", " + how
				}
				rows = append(rows, []string{term.Line(s.Name, 24), where, term.Line(cmp.Or(s.URL, strings.Join(s.Command, " ")), 30), term.Line(tools, 16)})
			}
			if done, err := app.Emit(a, all); done {
				return err
			}
			a.Out.Rows([]string{"NAME", "WHERE", "SERVER", "TOOLS"}, rows)
			return nil
		},
	}
	mcpFlag(cmd, &file)
	return cmd
}

// foundRow is a tool as programs read it.
type foundRow struct {
	Server      string `json:"server"`
	Name        string `json:"name,omitempty"`
	Effect      string `json:"effect,omitempty"`
	Description string `json:"description,omitempty"`
	Error       string `json:"error,omitempty"`
	Remark      string `json:"remark,omitempty"` // a tool that cannot be used
}

func mcpTest(a *app.App) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "test [NAME]",
		Short: "Start MCP servers and list their tools",
		Long: `Starts the named server of the list, or all, and lists its tools with their
effects, which decide about calls interrupted by a crash. A server for sandboxes
starts in an empty one. Exit code 1 if a server is not usable.`,
		Example: "  rath mcp test\n  rath mcp test files",
		Args:    app.AtMost(1, "one name"),
		RunE: func(cmd *cobra.Command, names []string) error {
			l, err := serverList(a, file)
			if err != nil {
				return err
			}
			all := l.All()
			if len(names) > 0 {
				one, err := l.Lookup(names[0])
				if err != nil {
					return app.WithCode(app.ExitUsage, err)
				}
				all = []*mcp.Server{one}
			}
			return testServers(cmd.Context(), a, all)
		},
	}
	mcpFlag(cmd, &file)
	return cmd
}

func testServers(ctx context.Context, a *app.App, all []*mcp.Server) error {
	list, rows, failed := []foundRow{}, [][]string{}, false
	for _, s := range all {
		specs, remarks, took, err := testServer(ctx, a, s)
		if err != nil {
			failed = true
			var f *tool.Failure
			text := messages.Text(err)
			if errors.As(err, &f) {
				text = f.Message
			}
			list = append(list, foundRow{Server: s.Name, Error: text})
			a.Remark("%s", text)
			continue
		}
		a.Remark("%s answers in %s; %s", s.Name, view.Took(took), view.Counted(int64(len(specs)), "tool"))
		for _, remark := range remarks {
			list = append(list, foundRow{Server: s.Name, Remark: remark})
			a.Remark("%s: %s", s.Name, remark)
		}
		for _, t := range specs {
			effect := t.Effect.String()
			if t.Outside {
				effect = tool.NonIdempotent.String()
			}
			list = append(list, foundRow{Server: s.Name, Name: t.Name, Effect: effect, Description: t.Description})
			rows = append(rows, []string{term.Line(t.Name, 36), effect, term.Line(t.Description, 28)})
		}
	}
	if done, err := app.Emit(a, list); done {
		if err != nil {
			return err
		}
	} else if len(rows) > 0 {
		a.Out.Rows([]string{"TOOL", "EFFECT", "DESCRIPTION"}, rows)
	}
	if failed {
		return app.Silent(app.ExitFailed)
	}
	return nil
}

func testServer(ctx context.Context, a *app.App, s *mcp.Server) (specs []tool.Spec, remarks []string, took time.Duration, err error) {
	var box sandbox.Sandbox
	if s.Where == mcp.InSandbox {
		dir, err := os.MkdirTemp("", "rath-mcp-*")
		if err != nil {
			return nil, nil, 0, err
		}
		defer func() { err = errors.Join(err, sandbox.RemoveTree(dir)) }()
		work := filepath.Join(dir, "work")
		if err := os.Mkdir(work, 0o700); err != nil {
			return nil, nil, 0, err
		}
		box, err = local.New(&local.Options{State: filepath.Join(dir, "boxes")}).Open(ctx, sandbox.Spec{Dir: work, MinIsolation: sandbox.IsolationProcess})
		if err != nil {
			return nil, nil, 0, err
		}
		defer func() { err = errors.Join(err, box.Close()) }()
	}
	began := time.Now()
	c, err := s.Connect(ctx, a.Getenv, box)
	if err != nil {
		return nil, nil, 0, err
	}
	specs, remarks, err = c.Tools(ctx)
	took = time.Since(began)
	_ = c.Close() // the error of a server that is being ended is no failure
	return specs, remarks, took, err
}

// loginTime is how long a person may take to sign in.
const loginTime = 10 * time.Minute

func mcpLogin(a *app.App) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "login NAME",
		Short: "Sign in to an MCP server, in a browser",
		Long: `Prints the address of a consent page, and waits for a browser on this machine.
The tokens go to the file of "login" in the server's entry; nodes refresh them
there.`,
		Example: "  rath mcp login tickets",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return app.Usage(cmd, errors.New("login takes the name of the server"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := serverList(a, file)
			if err != nil {
				return err
			}
			s, err := l.Lookup(args[0])
			if err != nil {
				return app.WithCode(app.ExitUsage, err)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), loginTime)
			defer cancel()
			err = s.Login(ctx, a.Getenv, func(url string) {
				a.Err.Println("open this page in a browser on this machine:\n  " + term.Line(url, 4000))
			})
			if err != nil {
				return err
			}
			hint := []string{"mcp", "test", s.Name}
			if file != "" {
				hint = append(hint, "--mcp", file)
			}
			a.Remark("signed in to %s; list its tools with\n  %s", s.Name, a.Hint(hint...))
			return nil
		},
	}
	mcpFlag(cmd, &file)
	return cmd
}

func mcpAdd(a *app.App) *cobra.Command {
	var file, where, url, token string
	var env, tools []string
	cmd := &cobra.Command{
		Use:   "add NAME [-- COMMAND [ARG]...]",
		Short: "Add an MCP server to the list",
		Long: `Appends a server to the list, and creates the file if it does not exist. A token
is named by env:NAME or file:PATH, and never written.`,
		Example: `  rath mcp add files -- mcp-server-filesystem .
  rath mcp add tickets --where host --env TICKETS_TOKEN -- tickets-server
  rath mcp add search --url https://mcp.example.com/mcp --token env:SEARCH_TOKEN`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return app.Usage(cmd, errors.New("add takes the name of the server"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			name := cmp.Or(file, a.Config.MCP.Value)
			if name == "" {
				return app.Fail(app.ExitUsage, "name the file with --mcp, RATH_MCP, or \"mcp\" in the configuration file")
			}
			if cmd.Flags().Changed("tools") && len(tools) == 0 {
				return app.Usage(cmd, errors.New("--tools has no tools; name them, or leave it out for all"))
			}
			return addServer(a, name, args[0], serverEntry{args[1:], where, url, token, env, tools})
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&where, "where", "", "where the command runs: sandbox or host (default sandbox)")
	fs.StringSliceVar(&env, "env", nil, "variables of the node to pass to the command")
	fs.StringVar(&url, "url", "", "address of the server, instead of a command")
	fs.StringVar(&token, "token", "", "source of its token: env:NAME or file:PATH")
	fs.StringSliceVar(&tools, "tools", nil, "permitted tools (default all)")
	mcpFlag(cmd, &file)
	return cmd
}

// serverEntry is the written form of an entry.
type serverEntry struct {
	Command []string `yaml:"command,flow,omitempty"`
	Where   string   `yaml:"where,omitempty"`
	URL     string   `yaml:"url,omitempty"`
	Token   string   `yaml:"token,omitempty"`
	Env     []string `yaml:"env,flow,omitempty"`
	Tools   []string `yaml:"tools,flow,omitempty"`
}

func addServer(a *app.App, file, name string, e serverEntry) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		text, err = []byte("servers:\n"), nil
	}
	if err != nil {
		return err
	}
	entry, err := yaml.Marshal(map[string]serverEntry{name: e})
	if err != nil {
		return err
	}
	if n := len(text); n > 0 && text[n-1] != '\n' {
		text = append(text, '\n')
	}
	for line := range strings.Lines(string(entry)) {
		text = append(text, "  "+line...)
	}
	// Parse the new text before writing it: a broken list never replaces a good one.
	l, err := mcp.Parse(file, text)
	if err != nil {
		return app.WithCode(app.ExitUsage, err)
	}
	if _, err := l.Lookup(name); err != nil {
		return app.Fail(app.ExitUsage, "%s does not use block style, so the server cannot be appended; add it by hand", file)
	}
	if err := writeList(file, text); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	hint := []string{"mcp", "test", name}
	if file != a.Config.MCP.Value {
		hint = append(hint, "--mcp", file)
	}
	a.Remark("%s is in %s; list its tools with\n  %s", name, file, a.Hint(hint...))
	return nil
}

// writeList replaces a file atomically, and keeps its permissions.
func writeList(file string, text []byte) error {
	mode := os.FileMode(0o600)
	if target, err := filepath.EvalSymlinks(file); err == nil {
		fi, err := os.Stat(target)
		if err != nil {
			return err
		}
		file, mode = target, fi.Mode().Perm()
	}
	dir := filepath.Dir(file)
	f, err := os.CreateTemp(dir, ".mcp-*")
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("there is no directory %s; make it first", dir)
	case err != nil:
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

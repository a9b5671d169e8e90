package start

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/llm/scripted"
)

// modelsAt is the default address of --listen for serving a script.
const modelsAt = "127.0.0.1:4280"

// Models is the command "models".
func Models(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "models",
		Short:   "List and test the models of the list, or serve a script as one",
		Long:    "Shows the list of models in the file of \"models\" (RATH_MODELS), tests their\nanswers and vectors, or serves a script as a model with OpenAI's protocol.",
		Example: "  rath models ls\n  rath models test fast\n  rath models serve --script model.txtar",
		Args:    app.NoSubcommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(modelsLs(a), modelsTest(a), modelsImport(a), modelsServe(a))
	return cmd
}

func modelsServe(a *app.App) *cobra.Command {
	var script, listen, log string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer OpenAI's chat completions and embeddings from a file",
		Long: `Answers OpenAI's chat completions (POST /v1/chat/completions, streaming or not,
with tools and usage, and GET /v1/models) from a script, until an interrupt. Any
program with this protocol can use it, in any language. POST /v1/embeddings
returns vectors of hashed words, for tests: texts with common words are near
each other.

"go doc github.com/rathcluster/rath/llm/scripted" explains the format of the
script. The server asks for no key, so it listens only on this machine unless
--listen is set.`,
		Example: `  rath models serve --script model.txtar
  rath models serve --script m.txtar --listen 127.0.0.1:8000 --log calls.jsonl`,
		Args: app.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if script == "" {
				return app.Usage(cmd, errors.New("--script is missing: it names the file that answers"))
			}
			o := &scripted.Options{}
			if log != "" {
				f, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, f.Close()) }()
				o.Log = f
			}
			s, err := serveModel(script, listen, o)
			if err != nil {
				return err
			}
			a.Out.Printf("rath models  %s   script %s\n", s.url, script)
			a.Out.Printf("use          export %s\n", strings.Join(s.env(), " "))
			if host, _, _ := net.SplitHostPort(listen); net.ParseIP(host) == nil || !net.ParseIP(host).IsLoopback() {
				a.Remark("the server asks for no key: any program with access to %s can use it", s.url)
			}
			select {
			case <-cmd.Context().Done():
			case err = <-s.failed:
			}
			return errors.Join(err, s.close())
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&script, "script", "", "txtar file with the answers")
	fs.StringVar(&listen, "listen", modelsAt, "address to listen on")
	fs.StringVar(&log, "log", "", "append a line of JSON for each request to this file")
	return cmd
}

// modelServer serves a script to programs that speak OpenAI's protocol.
type modelServer struct {
	url    string // with /v1
	http   http.Server
	failed chan error
	ended  chan struct{}
}

// headerLast bounds how long a client may take to send the headers of a request,
// idleLast how long a connection stays open between two requests.
const (
	headerLast = 30 * time.Second
	idleLast   = 2 * time.Minute
)

func serveModel(file, listen string, o *scripted.Options) (*modelServer, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	script, err := scripted.Parse(filepath.Base(file), data)
	if err != nil {
		return nil, app.WithCode(app.ExitUsage, err)
	}
	m, err := scripted.New(script, o)
	if err != nil {
		return nil, app.WithCode(app.ExitUsage, err)
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, app.Fail(app.ExitUnavailable, "models: %w; choose another address with --listen", err)
	}
	s := &modelServer{
		url: "http://" + l.Addr().String() + "/v1", failed: make(chan error, 1), ended: make(chan struct{}),
		http: http.Server{Handler: m, ReadHeaderTimeout: headerLast, IdleTimeout: idleLast},
	}
	go func() { // ends with close
		defer close(s.ended)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- fmt.Errorf("models: %w", err)
		}
	}()
	return s, nil
}

// env returns the variables that make a program send OpenAI requests here.
func (s *modelServer) env() []string {
	return []string{"OPENAI_BASE_URL=" + s.url, "OPENAI_API_KEY=none", "OPENAI_DEFAULT_MODEL=" + scripted.DefaultModel}
}

// closeLast bounds how long answers in progress may take once the server closes.
const closeLast = time.Second

// close ends the server; s may be nil.
func (s *modelServer) close() error {
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLast)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) { // an answer that hangs, as the script demands
		err = s.http.Close()
	}
	<-s.ended
	return err
}

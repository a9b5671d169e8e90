package mcp

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rathcluster/rath/internal/models/listfile"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/sandbox"
)

// endGrace is the time for a server to end by itself after its input has ended.
const endGrace = 500 * time.Millisecond

// process is a server that was started.
type process struct {
	stdin  io.WriteCloser
	stdout io.ReadCloser
	kill   func() // may be called several times
	done   chan struct{}
	how    string // it ended; valid once done is closed
	redact func(string) string
	mark   string // the line before its standard error; "" if there is none
	said   *tail  // that
	told   chan struct{}

	closing sync.Once
}

// broke reports whether an error is of the streams themselves, not of their contents.
func (p *process) broke(err error) bool {
	_, file := errors.AsType[*os.PathError](err)
	return file || errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, sdk.ErrConnectionClosed)
}

// ended returns how the process ended, or a general reason if it has not ended within
// endGrace.
func (p *process) ended() string {
	select {
	case <-p.done:
		return p.how
	case <-time.After(endGrace):
		return "it closed its output"
	}
}

// close ends the input, and the process if it does not end by itself.
func (p *process) close() (err error) {
	p.closing.Do(func() {
		_ = p.stdin.Close()
		select {
		case <-p.done:
		case <-time.After(endGrace):
		}
		p.kill()
		<-p.done
		err = p.stdout.Close()
	})
	return err
}

// lines returns the connection of its messages, which pass a gate.
func (p *process) lines(g *gate) *lines {
	g.kill = p.kill
	return &lines{p: p, g: g, in: bufio.NewReaderSize(p.stdout, 64<<10), writing: make(chan struct{}, 1)}
}

// inShell is a script that runs a server and separates its standard error, because a
// sandbox merges both streams. After the server ends, the script prints a line that the
// node chose, then the beginning and the end of the standard error.
const inShell = `mark=$1; shift; exec 4>&1
said=$({ "$@" 2>&1 >&4 4>&-; echo "ended $?"; } | { head -c 1024; tail -c 4096; })
printf '\n%s\n%s\n' "$mark" "$said"; code=${said##*ended }
case $code in *[!0-9]*|"") exit 1;; esac; exit "$code"`

// inSandbox starts a server as a command of a sandbox.
func inSandbox(s *Server, env func(string) string, box sandbox.Sandbox) *process {
	ctx, cancel := context.WithCancel(context.Background())
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	redact := func(text string) string { return s.redact(env, text) }
	p := &process{stdin: inW, stdout: outR, done: make(chan struct{}), redact: redact}
	p.kill = func() {
		cancel()
		_ = outR.Close() // the sandbox waits until its output is read
	}
	vars := map[string]string{}
	for _, name := range s.Env {
		if v := env(name); v != "" {
			vars[name] = v
		}
	}
	p.mark, p.said, p.told = rand.Text(), &tail{secrets: s.secrets(env)}, make(chan struct{})
	argv := append([]string{"sh", "-c", inShell, "sh", p.mark}, s.Command...)
	go func() { // ends with kill
		defer close(p.done)
		exit, err := box.Exec(ctx, sandbox.Cmd{ID: "mcp " + s.Name, Argv: argv, Env: vars, Stdin: inR, Timeout: sandbox.NoTimeout, Output: 2, Offload: outW})
		_ = inR.Close()
		_ = outW.Close()
		switch {
		case err != nil && ctx.Err() == nil && !errors.Is(err, io.ErrClosedPipe):
			p.how = "its sandbox was lost: " + err.Error()
		case exit.Ended == sandbox.Exited && exit.Code == 127:
			p.how = fmt.Sprintf("the sandbox has no program %q", s.Command[0])
		case exit.Ended == sandbox.Exited:
			p.how = fmt.Sprintf("it exited with code %d", exit.Code)
			select {
			case <-p.told:
			case <-time.After(endGrace):
			}
			if text := regexp.MustCompile(`\s*ended \d+\s*$`).ReplaceAllString(p.said.text(), ""); text != "" {
				p.how += fmt.Sprintf(", with %q on standard error", text)
			}
		default:
			p.how = "it was killed (" + string(exit.Ended) + ")"
		}
		cancel()
	}()
	return p
}

// basicEnv are the variables of each server on the host.
var basicEnv = []string{"PATH", "HOME", "LANG", "TMPDIR"}

// onHost starts a server as a child process, in its own directory.
func onHost(s *Server, env func(string) string, g *gate) (*process, error) {
	dir, err := os.MkdirTemp("", "rath-mcp-*")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(s.Command[0], s.Command[1:]...)
	cmd.Dir, cmd.Env = dir, []string{}
	for _, name := range append(append([]string{}, basicEnv...), s.Env...) {
		if v := env(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	ownGroup(cmd)
	said := &tail{secrets: s.secrets(env)}
	cmd.Stderr = bound{said, g}
	cmd.WaitDelay = endGrace // a process that it left behind may hold its streams
	p := &process{done: make(chan struct{}), redact: func(text string) string { return s.redact(env, text) }}
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, inR.Close(), inW.Close(), os.Remove(dir))
	}
	cmd.Stdin, cmd.Stdout, p.stdin, p.stdout = inR, outW, inW, outR
	err = cmd.Start()
	_ = errors.Join(inR.Close(), outW.Close())
	if err != nil {
		return nil, errors.Join(err, inW.Close(), outR.Close(), os.Remove(dir))
	}
	p.kill = sync.OnceFunc(func() { killGroup(cmd) })
	go func() { // ends with kill
		defer close(p.done)
		err := cmd.Wait()
		p.kill() // ends its remaining processes
		// Processes that left the group may hold the streams open. Do not wait for them.
		_ = inW.Close()
		_ = outR.SetReadDeadline(time.Now().Add(endGrace))
		switch state := cmd.ProcessState; {
		case state != nil && state.Exited():
			p.how = fmt.Sprintf("it exited with code %d", state.ExitCode())
		case state != nil:
			p.how = "it was killed (" + state.String() + ")"
		default:
			p.how = "it was lost: " + err.Error()
		}
		if text := said.text(); text != "" {
			p.how += fmt.Sprintf(", with %q on standard error", text)
		}
		_ = os.RemoveAll(dir)
	}()
	return p, nil
}

// secrets returns the texts from a server's configuration that no error may contain: values
// of variables, tokens, and credentials for tokens.
func (s *Server) secrets(env func(string) string) (all []string) {
	for _, name := range s.Env {
		all = append(all, strings.TrimSpace(env(name)))
	}
	if s.Token != "" {
		if token, err := listfile.Secret(env, s.file, s.Token, "token"); err == nil {
			all = append(all, token)
		}
	}
	if s.oauth != nil {
		all = append(all, s.oauth.secrets(s, env)...)
	}
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) }) // one may be in another
	return all
}

// redact removes them from a text.
func (s *Server) redact(env func(string) string, text string) string {
	return llm.Redact(text, s.secrets(env)...)
}

// tail keeps the end of a server's standard error.
type tail struct {
	secrets []string

	mu   sync.Mutex
	last []byte
}

// mostSaid is the maximum number of its bytes that are reported, and mostKept the maximum
// that are stored.
const (
	mostSaid = 500
	mostKept = 8 << 10
)

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, p[max(0, len(p)-mostKept):]...)
	t.last = t.last[max(0, len(t.last)-mostKept):]
	return len(p), nil
}

// bound is the standard error of a server on the host.
type bound struct {
	*tail
	g *gate
}

// Write implements io.Writer.
func (b bound) Write(p []byte) (int, error) {
	if !b.g.stderr.take(0, len(p)) {
		return 0, b.g.fail(errLoud)
	}
	return b.tail.Write(p)
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := string(t.last)
	for _, secret := range t.secrets {
		// The stored text may begin with the end of a secret.
		for i := 1; i < len(secret) && len(t.last) == mostKept; i++ {
			if rest, ok := strings.CutPrefix(text, secret[i:]); ok {
				text = rest
				break
			}
		}
	}
	text = strings.ToValidUTF8(llm.Redact(text, t.secrets...), "")
	return strings.TrimSpace(strings.ToValidUTF8(text[max(0, len(text)-mostSaid):], ""))
}

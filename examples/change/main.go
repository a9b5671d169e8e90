// Command change shows a whole task: researchers work at the same time, a judge picks
// what to go by, a coder changes files, a person reads the patch and approves it, and
// it is committed.
//
//	go run ./examples/change
//
// It asks on the terminal: "y" approves, anything else is the reason for which the
// coder tries again. The model is a script, so that it runs without a key and always
// tells the same story.
package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/inprocess"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
	"github.com/rathcluster/rath/session"
)

//go:embed model.txtar
var script []byte

// request is what the user asks for.
const request = "Make greeting.txt friendlier."

func main() {
	local.Reexec() // first of all: sandboxes start this program again
	dir, err := os.MkdirTemp("", "change-")
	if err == nil {
		err = errors.Join(change(context.Background(), os.Stdin, os.Stdout, dir), os.RemoveAll(dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "change:", err)
		os.Exit(1)
	}
}

// change runs the workflow on a small directory below dir, with a person at in and out.
func change(ctx context.Context, in io.Reader, out io.Writer, dir string) error {
	parsed, err := scripted.Parse("model.txtar", script)
	if err != nil {
		return err
	}
	model, err := scripted.New(parsed, nil)
	if err != nil {
		return err
	}
	files := filepath.Join(dir, "files")
	if _, err := parsed.WriteFiles(files); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	r := &inprocess.Runner{
		Models: model, Dir: filepath.Join(dir, "work"),
		Sandboxes: map[string]sandbox.Backend{"local": local.New(&local.Options{State: filepath.Join(dir, "boxes")})},
		// No command runs here that a model chose, so this will do where
		// the system confines nothing.
		Unsafe: true,
		Answer: func(_ context.Context, q run.Question) (any, error) { return ask(q, lines, out) },
	}
	commit := func(_ context.Context, id, patch string) error {
		return os.WriteFile(filepath.Join(dir, id+".patch"), []byte(patch), 0o600)
	}
	s, err := r.Run(ctx, newChange(commit), session.New(session.UserText(request)).To("local", files))
	if err != nil {
		return err
	}
	committed, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%d patch committed: %s\n", len(committed), s.Text())
	return err
}

// ask shows a question and reads the answer.
func ask(q run.Question, lines *bufio.Scanner, out io.Writer) (any, error) {
	if _, err := fmt.Fprintf(out, "%s\n%s\nyes (y), or what to do instead: ", q.Title, q.Detail); err != nil {
		return nil, err
	}
	if !lines.Scan() {
		return nil, errors.Join(errors.New("the input ended before an answer"), lines.Err())
	}
	answer := strings.TrimSpace(lines.Text())
	_, err := fmt.Fprintln(out)
	return flow.Approval{Approved: answer == "y", Reason: answer, By: "you"}, err
}

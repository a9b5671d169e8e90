// Command change shows a whole task: researchers work concurrently, a judge picks a
// finding, a coder changes files, the user reads and approves the patch, and it is
// committed.
//
//	go run ./examples/change
//
// It asks on the terminal: "y" approves, anything else is the reason for which the
// coder tries again. The model is a script, so it runs without a key and always gives
// the same output.
//
// With arguments it is a node that offers the workflow "change", whose patches are
// committed to the directory in CHANGE_COMMITS:
//
//	go build -o change ./examples/change
//	CHANGE_COMMITS=/tmp rath dev --nodes 3 --node ./change --script examples/change/model.txtar
//	rath submit change -C DIRECTORY -m "Make greeting.txt friendlier."
package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
	"github.com/rathcluster/rath/session"
)

//go:embed model.txtar
var script []byte

// request is the user's request.
const request = "Make greeting.txt friendlier."

func main() {
	local.Reexec() // first of all: sandboxes start this program again
	if len(os.Args) > 1 {
		node.Main(registration())
	}
	dir, err := os.MkdirTemp("", "change-")
	if err == nil {
		err = errors.Join(change(context.Background(), os.Stdin, os.Stdout, dir), os.RemoveAll(dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "change:", err)
		os.Exit(1)
	}
}

// registration offers the workflow to tasks, whose input is the user's request.
func registration() flow.Registration {
	return flow.Registration{
		Name: "change", Revision: "1", Description: "Changes files, and commits what a person approved.",
		NewFor: func(s flow.Info) (flow.Workflow, error) {
			var request string
			if err := json.Unmarshal(s.Input, &request); err != nil || request == "" {
				return nil, errors.New("change: the input is no text that says what to change")
			}
			dir := os.Getenv("CHANGE_COMMITS")
			if dir == "" {
				return nil, errors.New("change: set CHANGE_COMMITS to the directory that patches are committed to")
			}
			return newChange(request, llm.Provider{Model: s.Model}, commitTo(dir)), nil
		},
	}
}

// commitTo returns a function that stores a patch in a file named by its id, so repeating
// it has no effect.
func commitTo(dir string) func(ctx context.Context, id, patch string) error {
	return func(_ context.Context, id, patch string) error {
		return os.WriteFile(filepath.Join(dir, id+".patch"), []byte(patch), 0o600)
	}
}

// change runs the workflow on a small directory below dir, with the user at in and out.
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
		// No model chooses the commands that run here, so they need no confinement.
		Unsafe: true,
		Answer: func(_ context.Context, q run.Question) (any, error) { return ask(q, lines, out) },
	}
	s, err := r.Run(ctx, newChange(request, llm.Provider{}, commitTo(dir)), session.New().To("local", files))
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

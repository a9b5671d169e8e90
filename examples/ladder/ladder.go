// Package ladder runs the examples of the ladder, examples/01-hello to
// examples/11-selector and the three systems above it. An example is a [Rung]: an ordinary
// workflow, the user's request, and a script that plays the model.
//
//	func main() { ladder.Main(hello.Rung()) }
//
// Such a program has two uses. Without arguments it runs the workflow once, in its own
// process, and prints the outcome. With arguments it is a node that offers the workflow,
// with the flags of every node.
package ladder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/sandbox/local"
	"github.com/rathcluster/rath/session"
)

// Rung is one example.
type Rung struct {
	Dir  string // below examples
	Name string // of the workflow
	Does string // in one line
	// New makes the workflow for one task.
	New func(flow.Info) (flow.Workflow, error)
	// Input is the user's request. A workflow of a Rung takes text.
	Input string
	// Script plays the model; docs/tutorial.md describes how to use a real one. Its files
	// below work/ are the session's files.
	Script []byte
	// Models are the names of models that the workflow chooses itself. If empty, it uses the
	// task's model.
	Models []string
	// Server is an MCP server of the example, named like the workflow: it speaks on standard
	// input and output until they end. nil has none.
	Server func(context.Context) error
	// Streams marks an example about updates before the end. It runs on a node and prints the
	// pieces of the answer as a client gets them.
	Streams bool
}

// Registration offers the workflow to tasks.
func (r Rung) Registration() flow.Registration {
	return flow.Registration{
		Name: r.Name, Revision: "1", Description: r.Does, NewFor: r.New,
		Input: json.RawMessage(`{"type":"string","minLength":1}`),
	}
}

// Prompted is a workflow for tasks with a text as input: it adds the text to the session as
// the user's message, and then runs w.
func Prompted(s flow.Info, w flow.Workflow) (flow.Workflow, error) {
	var text string
	if err := json.Unmarshal(s.Input, &text); err != nil || text == "" {
		return nil, errors.New("the input is no text: send what you ask for as a JSON string")
	}
	return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		return w.Forward(ctx, s.With(session.UserText(text)))
	}), nil
}

// serve is the first argument of a program that is the example's MCP server.
const serve = "serve"

// Main is the main function of an example.
func Main(r Rung) {
	local.Reexec() // first of all: sandboxes start this program again
	Child(r)
	if len(os.Args) > 1 {
		node.Main(r.Registration())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := r.Play(ctx, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", r.Name, err)
		os.Exit(1)
	}
}

// Child runs the MCP server of an example and exits, if this process was started as one.
func Child(rs ...Rung) {
	for _, r := range rs {
		if r.Server == nil || len(os.Args) != 3 || os.Args[1] != serve || os.Args[2] != r.Name {
			continue
		}
		if err := r.Server(context.Background()); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", r.Name, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// Play runs the example once and prints the outcome. It uses the script or, if
// OPENAI_DEFAULT_MODEL names a model, that model, and reports it in a line among the
// remarks.
func (r Rung) Play(ctx context.Context, out, remarks io.Writer) error {
	real := os.Getenv("OPENAI_DEFAULT_MODEL")
	var models llm.Models
	var err error
	if real != "" {
		fmt.Fprintf(remarks, "%s: asks model %s (OPENAI_DEFAULT_MODEL); unset it for the script\n", r.Name, real)
		models, err = node.DefaultModels(os.Getenv, real)
	} else {
		models, err = Models(r)
	}
	if err != nil {
		return err
	}
	run := r.InProcess
	if r.Streams {
		run = r.atNode
	}
	story, err := run(ctx, models, real, out)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, story)
	return err
}

// Scripts are the scripts of examples as models, by name.
type Scripts map[string]*scripted.Model

// Models returns the scripts of examples, by the names that they answer to.
func Models(rs ...Rung) (Scripts, error) {
	all := Scripts{}
	for _, r := range rs {
		parsed, err := scripted.Parse(r.Dir+"/model.txtar", r.Script)
		if err != nil {
			return nil, err
		}
		m, err := scripted.New(parsed, nil)
		if err != nil {
			return nil, err
		}
		for _, name := range r.Answers() {
			all[name] = m
		}
	}
	return all, nil
}

// Answers are the names of models for which the example's script answers: its Models, or
// the name of its workflow.
func (r Rung) Answers() []string {
	if len(r.Models) > 0 {
		return r.Models
	}
	return []string{r.Name}
}

// model returns the model that a task for the example names: real, or the script. It is
// empty if the workflow chooses the models itself.
func (r Rung) model(real string) string {
	if real == "" && len(r.Models) == 0 {
		return r.Name
	}
	return real
}

// Client implements llm.Models.
func (m Scripts) Client(ctx context.Context, p llm.Provider) (llm.Client, error) {
	one, ok := m[p.Model]
	if !ok {
		return nil, fmt.Errorf("no example has the model %q", p.Model)
	}
	return one.Client(ctx, p)
}

// Package demo is the workflow that `rath demo` shows: five agents mend a small
// repository, one patch is rejected with a reason, and the lesson is kept.
//
// It is an ordinary workflow on public packages. The repository and the
// script of the model that needs no key ship with it.
package demo

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

//go:embed repo
var repo embed.FS

//go:embed script.txtar
var script []byte

// Name is the name that the workflow is registered under.
const Name = "demo"

// Memory is the name of the memory that keeps the lessons.
const Memory = "demo"

// Kind is the llm.Provider kind of the demo's scripted model.
const Kind = "demo"

// Revision of the workflow.
const Revision = "1"

// Attempts is the number of patches that the workflow tries.
const Attempts = 3

// Model returns the scripted model, slower by a factor than a fast model is; 0 answers
// at once.
func Model(slow int) (*scripted.Model, error) {
	s, err := scripted.Parse("demo.txtar", script)
	if err != nil {
		return nil, err
	}
	s.Slow(slow)
	return scripted.New(s, nil)
}

// Unpack writes the repository into a directory, which it makes.
func Unpack(dir string) error {
	return fs.WalkDir(repo, "repo", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(dir, filepath.FromSlash(strings.TrimPrefix(strings.TrimPrefix(name, "repo"), "/")))
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		data, err := repo.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o644)
	})
}

// Workflow is the demo's workflow.
type Workflow struct {
	research, plan, code, verify *flow.Agent
}

// New returns the workflow with all agents on one provider.
func New(p llm.Provider) *Workflow {
	tools := map[string]tool.Tool{}
	for _, t := range tool.Builtins() {
		tools[t.Spec().Name] = t
	}
	read, list, write := tools["read_workspace_file"], tools["list_workspace_files"], tools["write_workspace_file"]
	return &Workflow{
		research: &flow.Agent{
			Name: "researcher", Provider: p, Memory: Memory, Tools: []tool.Tool{read, list},
			Prompt: "You are the researcher. Read issue.md and the files it is about, and say in a few lines what is wrong and why. Change nothing.",
		},
		plan: &flow.Agent{
			Name: "planner", Provider: p,
			Prompt: "You are the planner. Write a numbered plan of at most four steps for what the researcher found. Name the files.",
		},
		code: &flow.Agent{
			Name: "coder", Provider: p, Memory: Memory, Tools: []tool.Tool{read, list, write},
			Prompt: "You are the coder. Follow the plan: read a file before you replace it, keep changes small, mind the notes from memory. Do not run the tests. End with one sentence about what you changed.",
		},
		verify: &flow.Agent{
			Name: "verifier", Provider: p,
			Prompt: "You are the verifier. Judge the change by the test results. Answer with one line \"ACCEPT: why\" or \"REJECT: what it breaks\". After a REJECT add a line \"LESSON: \" with one general sentence that would have prevented it.",
		},
	}
}

// Input is the task that the demo submits.
const Input = "Mend the issue in issue.md: slug drops the last word."

// task is the input of this workflow.
type task struct {
	// Live lets every agent use the task's model instead of the scripted one. A task names no
	// server and no key, because its sender is untrusted.
	Live bool `json:"live,omitempty"`
	// Dir is the directory that the demo works on a copy of; it must lie below
	// the directory that the workflow was registered with. Without it the
	// repository that ships with the demo is unpacked there.
	Dir string `json:"dir,omitempty"`
}

// settings returns the provider of a task's agents, and the directory that the task works
// on a copy of.
func settings(s flow.Info, root string) (p llm.Provider, dir string, err error) {
	var t task
	if len(s.Input) > 0 {
		if err := messages.DecodeInput("demo", s.Input, &t); err != nil {
			return p, "", err
		}
	}
	if p.Kind = Kind; t.Live {
		p = llm.Provider{Model: s.Model}
	}
	dir, err = t.directory(root)
	return p, dir, err
}

// directory returns the directory that a task works on. The sender of a task is untrusted,
// so the task cannot name an arbitrary directory of this machine.
func (t *task) directory(root string) (string, error) {
	if t.Dir == "" {
		dir := filepath.Join(root, "repo")
		return dir, Unpack(dir)
	}
	rel, err := filepath.Rel(root, t.Dir)
	if err != nil || !filepath.IsLocal(rel) {
		return "", fmt.Errorf("demo: directory %s is not below %s, which is all that a task of the demo may name", t.Dir, root)
	}
	return t.Dir, nil
}

// Registration offers the workflow; root is an absolute path, the directory for
// the repositories that it works on copies of.
func Registration(root string) flow.Registration {
	return flow.Registration{
		Name: Name, Revision: Revision,
		Description: "Mends a small repository: researcher, planner, coder, verifier; a rejected patch leaves a lesson.",
		NewFor: func(s flow.Info) (flow.Workflow, error) {
			p, dir, err := settings(s, root)
			if err != nil {
				return nil, err
			}
			return &start{New(p), dir}, nil
		},
	}
}

// start places the session before the workflow begins.
type start struct {
	*Workflow
	dir string
}

func (w *start) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	return w.Workflow.Forward(ctx, s.With(session.UserText(Input)).To("local", w.dir))
}

// Forward implements flow.Workflow.
func (w *Workflow) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	s, err := flow.Sequence(w.research, w.plan).Forward(ctx, s)
	if err != nil {
		return s, err
	}
	for range Attempts {
		try, err := flow.Fork(ctx, s)
		if err != nil {
			return s, err
		}
		if try, err = w.code.Forward(ctx, try); err != nil {
			return s, err
		}
		try, _, err = flow.CallTool(ctx, try, tests(), map[string]string{"cmd": "sh test.sh"})
		if err != nil {
			return s, err
		}
		if try, err = w.verify.Forward(ctx, try); err != nil {
			return s, err
		}
		verdict, reason, lesson := judge(try.Text())
		if verdict {
			return flow.Adopt(ctx, s, try, reason)
		}
		if err := flow.Reject(ctx, try, reason); err != nil {
			return s, err
		}
		if lesson != "" {
			if _, err := flow.Remember(ctx, Memory, "lessons", lesson); err != nil {
				return s, err
			}
		}
	}
	return s, fmt.Errorf("demo: no patch passed in %d attempts", Attempts)
}

// tests returns the tool that runs the repository's tests. Most processes never need it,
// and the tools of every node take longer to make than most programs to start.
var tests = sync.OnceValue(func() tool.Tool {
	for _, t := range tool.Builtins() {
		if t.Spec().Name == "run_shell_command" {
			return t
		}
	}
	panic(errors.New("demo: there is no run_shell_command"))
})

// judge reads the verifier's answer. Anything but a clear ACCEPT rejects.
func judge(text string) (accepted bool, reason, lesson string) {
	reason = "the verifier gave no verdict"
	for line := range strings.Lines(text) {
		switch key, rest, _ := strings.Cut(strings.TrimSpace(line), ":"); strings.ToUpper(key) {
		case "ACCEPT":
			accepted, reason = true, strings.TrimSpace(rest)
		case "REJECT":
			accepted, reason = false, strings.TrimSpace(rest)
		case "LESSON":
			lesson = strings.TrimSpace(rest)
		}
	}
	return accepted, reason, lesson
}

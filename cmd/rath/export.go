package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/dossier"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func (a *app) exportCommand() *cobra.Command {
	var form, out string
	var script bool
	cmd := &cobra.Command{
		Use:   "export NAME",
		Short: "Write the evidence of a run, a session for OpenRath, or a script",
		Long: `Writes to standard output, or to the file of --out:

  --dossier html|md|json   the evidence of a run, which "verify" checks offline
  --script                 the model's answers of a run as a txtar script that
                           "run --script" answers from
  neither                  a session as OpenRath's JSONL

A script knows each answer by its place in the conversation and by what was
said last. Prompts of agents are not part of a session, so two agents that
answer the same words at the same place answer in turns.`,
		Example: `  rath export @last --dossier html --out run.html
  rath export @last --script --out testdata/model.txtar
  rath export 7f3a > session.jsonl`,
		Args: exactly(1, "one session or run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if script && form != "" {
				return usage(cmd, fmt.Errorf("give --dossier or --script, not both"))
			}
			if form != "" {
				if err := oneOf("html", "md", "json")(form); err != nil {
					return usage(cmd, fmt.Errorf("--dossier %w", err))
				}
			}
			ctx := cmd.Context()
			return a.with(ctx, func(s *system) error {
				if err := s.direct("export"); err != nil {
					return err
				}
				data, err := a.exported(ctx, s, args[0], form, script)
				if err != nil {
					return err
				}
				if out == "" || out == "-" {
					_, err := a.out.Write(data)
					return err
				}
				return replaceFile(out, data)
			})
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&form, "dossier", "", "html, md or json")
	fs.BoolVar(&script, "script", false, "the model's answers as a script")
	fs.StringVar(&out, "out", "", "write to this file")
	return cmd
}

func (a *app) exported(ctx context.Context, s *system, name, form string, script bool) ([]byte, error) {
	switch {
	case form != "":
		r, err := s.runOf(ctx, name)
		if err != nil {
			return nil, err
		}
		e, err := a.evidence(ctx, s, &r)
		if err != nil {
			return nil, err
		}
		return render(e, form)
	case script:
		r, err := s.runOf(ctx, name)
		if err != nil {
			return nil, err
		}
		return s.script(ctx, &r)
	}
	n, err := s.resolve(ctx, name)
	if err != nil {
		return nil, err
	}
	v, err := s.at(ctx, n.ref(s.Tenant()))
	if err != nil {
		return nil, err
	}
	return exportOpenRath(v)
}

// evidence collects what proves a run. It states what the commits do not.
func (a *app) evidence(ctx context.Context, s *system, r *messages.RunInfo) (*dossier.Evidence, error) {
	home := session.Key{Tenant: s.Tenant(), ID: r.Session}
	return dossier.Collect(ctx, s.log, s.blobs(s.Tenant()), home, r.Run, &dossier.CollectOptions{
		Stated: []dossier.Fact{{Name: dossier.FactRelease, Value: node.Version()}},
	})
}

func render(e *dossier.Evidence, form string) ([]byte, error) {
	switch form {
	case "html":
		return dossier.HTML(e)
	case "md":
		return dossier.Markdown(e)
	}
	return e.Encode()
}

// writeDossier writes the evidence of a run into a file whose name says the
// form.
func (a *app) writeDossier(ctx context.Context, s *system, id run.ID, name string) error {
	if err := s.direct("--out-dossier"); err != nil {
		return err
	}
	form, err := formOf(name)
	if err != nil {
		return err
	}
	r, err := s.Run(ctx, id)
	if err != nil {
		return err
	}
	e, err := a.evidence(ctx, s, &r)
	if err != nil {
		return err
	}
	data, err := render(e, form)
	if err != nil {
		return err
	}
	return replaceFile(name, data)
}

// formOf is the form that the name of a dossier's file says.
func formOf(name string) (string, error) {
	form := strings.TrimPrefix(filepath.Ext(name), ".")
	if err := oneOf("html", "md", "json")(form); err != nil {
		return "", fail(exitUsage, "--out-dossier %s: the name's end says the form: .html, .md or .json", name)
	}
	return form, nil
}

// replaceFile writes a file so that a reader sees the old or the new one whole.
func replaceFile(name string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".rath-*")
	if err != nil {
		if e, ok := errors.AsType[*fs.PathError](err); ok {
			err = e.Err // without the name that the file would have had for a moment
		}
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = f.Write(data)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// script returns the model's answers of a run, in the order of its steps.
func (s *system) script(ctx context.Context, r *messages.RunInfo) ([]byte, error) {
	sc := &scripted.Script{
		Name:    string(r.Run),
		Comment: fmt.Sprintf("What the model answered in run %s of %s.", r.Run, r.Workflow),
	}
	type found struct {
		path run.Path
		rule scripted.Rule
	}
	var all []found
	for _, id := range append([]session.ID{r.Session}, r.Sessions...) {
		if id == "" {
			continue
		}
		key := session.Key{Tenant: s.Tenant(), ID: id}
		v, err := s.at(ctx, session.Ref{Key: key})
		if err != nil {
			return nil, err
		}
		var said []llm.Message
		for _, c := range v.Chunks() {
			if c.Kind() == session.Assistant && c.Origin().Run == string(r.Run) && c.Ref().ID == id {
				o := c.Origin()
				name := "step-" + o.Step + "-" + cmp.Or(o.Agent, "model")
				all = append(all, found{run.Path(o.Step), scripted.Exchange(name, &llm.Request{Messages: said}, answerOf(c))})
			}
			said = append(said, messageOf(c, said))
		}
	}
	taken := map[string]bool{}
	seen := map[string]int{}
	slices.SortStableFunc(all, func(a, b found) int { return run.ComparePaths(a.path, b.path) })
	for _, f := range all {
		if taken[f.rule.Name] {
			continue // the home session is among the sessions
		}
		taken[f.rule.Name] = true
		key := fmt.Sprint(f.rule.When)
		if i, ok := seen[key]; ok {
			sc.Rules[i].Times = 1 // the next one with these conditions answers then
		}
		seen[key] = len(sc.Rules)
		sc.Rules = append(sc.Rules, f.rule)
	}
	if len(sc.Rules) == 0 {
		return nil, fail(exitNotFound, "run %s called no model: there is nothing to put into a script", r.Run)
	}
	return sc.Format()
}

// answerOf returns a row as the answer that a model gave.
func answerOf(c session.Chunk) *llm.Response {
	u := c.Origin().Usage
	resp := &llm.Response{Text: c.Text(), Usage: llm.Usage{Input: u.Input, Output: u.Output}}
	for _, call := range c.Calls() {
		resp.Calls = append(resp.Calls, llm.ToolCall{ID: call.ID, Name: call.Name, Args: call.Args})
	}
	return resp
}

// messageOf returns a row as a request shows it.
func messageOf(c session.Chunk, before []llm.Message) llm.Message {
	switch c.Kind() {
	case session.System:
		return llm.Message{Role: llm.System, Text: c.Text()}
	case session.Assistant:
		m := llm.Message{Role: llm.Assistant, Text: c.Text()}
		for _, call := range c.Calls() {
			m.Calls = append(m.Calls, llm.ToolCall{ID: call.ID, Name: call.Name, Args: call.Args})
		}
		return m
	case session.ToolResult:
		for i := range before {
			for _, call := range before[i].Calls {
				if call.ID == c.CallID() {
					return llm.Message{Role: llm.Tool, Text: flow.ToolText(c), CallID: c.CallID(), Name: c.Name()}
				}
			}
		}
		return llm.Message{Role: llm.User, Text: "Result of " + c.Name() + ": " + flow.ToolText(c)} // the workflow called it
	}
	return llm.Message{Role: llm.User, Text: c.Text()}
}

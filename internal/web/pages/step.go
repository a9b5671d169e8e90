package pages

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/nats/remotelog"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// stepPage is one call of a run, whole.
type stepPage struct {
	Info        *messages.RunInfo
	Href        string
	Row         *row
	Reason      view.Reason
	Prompt      []messages.Chunk // the rows that the model got, the last ones
	PromptTotal int
	Impact      *lineage.Impact
}

// promptRows bounds the rows of a prompt on a page.
const promptRows = 50

func (v *visit) step() error {
	id, path := run.ID(v.r.PathValue("run")), run.Path(v.r.PathValue("step"))
	h, err := readHistory(v, id)
	if err != nil {
		return err
	}
	if h.graph == nil {
		return errNothing
	}
	if err := converse(v, h, true); err != nil {
		return err
	}
	m, err := h.graph.Step(v.Tenant, id, path)
	if errors.Is(err, lineage.ErrNotFound) {
		return errNothing
	}
	if err != nil {
		return err
	}
	b := &stepPage{Info: &h.info, Href: v.base() + "/runs/" + string(id)}
	records := view.Records{Tenant: v.Tenant, Blobs: v.Client.Blobs(), Log: remotelog.Of(v.Client), Session: func(_ context.Context, ref string) (messages.Session, error) {
		return v.tail(ref, promptRows)
	}}
	if b.Reason, err = records.ReasonOfMaker(v.ctx, &m); err != nil {
		return err
	}
	b.Reason.What = string(id) + "/" + string(path)
	if err := b.Reason.Complete(h.graph, v.Tenant); err != nil {
		return err
	}
	for _, r := range rowsOf(v, h) {
		if r.Step == path && r.Run == id {
			b.Row = r
		}
	}
	if m.Kind == messages.KindModel && m.Version > 1 {
		before, err := v.tail(session.Ref{Key: session.Key{ID: m.Session}, Version: m.Version - 1}.String(), promptRows)
		if err != nil {
			return err
		}
		b.PromptTotal, b.Prompt = before.Total, before.Chunks
	}
	if impact, err := h.graph.ImpactOfStep(v.Tenant, id, path); err == nil {
		b.Impact = &impact
	}
	return v.show(200, "step", &frame{
		Title: string(id) + " step " + string(path), Here: "runs", Body: b, Keys: []key{{"o", "open the run"}, {"?", "all keys"}},
		Same: []string{"rath show " + string(id) + " --step " + string(path), v.curl("GET", "/runs/"+string(id)+"/why?step="+string(path))},
	})
}

// task is the task of a run, as its log has it.
type task struct {
	messages.Task
	Budget run.Budget
	Simple bool // a task with these fields alone is the same task
}

// Text is the task's input, as text if it is one.
func (t *task) Text() string {
	var text string
	if json.Unmarshal(t.Input, &text) == nil {
		return text
	}
	return string(t.Input)
}

// taskOf reads the task of a run; it is empty if the log does not have it.
func taskOf(v *visit, h *history) (t task) {
	for e, err := range remotelog.Of(v.Client).Read(v.ctx, session.Key{Tenant: v.Tenant, ID: h.info.Session}, commitlog.Position{}) {
		if err != nil {
			return t // the page stands without it
		}
		for _, f := range journal.Facts(e.Commit) {
			if s, ok := f.What.(journal.Submitted); ok && s.Task.Run == h.info.Run {
				w := s.Task
				t.Budget, t.Input, t.Model, t.Tools, t.MCP = w.Budget, json.RawMessage(w.Input), w.Model, w.Tools, w.MCP
				if !w.Workspace.IsZero() {
					t.Workspace = w.Workspace.String()
				}
				t.Simple = w.ForkOf == nil && w.Branch == nil && reflect.ValueOf(w.Sandbox).IsZero()
				return t
			}
		}
	}
	return t
}

package pages

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/web/access"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// mostStopped bounds the runs that one form stops.
const mostStopped = 200

// act does one thing with a run.
func (v *visit) act() error {
	id, verb := run.ID(v.r.PathValue("run")), v.r.PathValue("verb")
	needs, known := map[string]string{
		"cancel": messages.VerbCancel, "message": messages.VerbMessage, "rerun": messages.VerbRerun, "resume": messages.VerbResume, "restart": access.VerbSubmit,
		"quarantine": messages.VerbQuarantine, "release": messages.VerbRelease, "rebudget": messages.VerbRebudget,
	}[verb]
	if !known {
		return errNothing
	}
	h, err := readHistory(v, id)
	if err != nil {
		return err
	}
	if err := v.May(needs); err != nil {
		return err
	}
	in, then := v.r.PostForm, id
	reason := strings.TrimSpace(in.Get("reason"))
	switch verb {
	case "cancel":
		err = v.Client.Runs.Cancel(v.ctx, id, messages.Control{Reason: reason})
	case "message":
		text := strings.TrimSpace(in.Get("text"))
		if text == "" {
			return fmt.Errorf("%w: the message is empty", errForm)
		}
		err = v.Client.Runs.Message(v.ctx, id, messages.Control{Text: text, Interrupt: in.Get("interrupt") != ""})
	case "rerun":
		then, err = v.Client.Runs.Rerun(v.ctx, id, messages.Control{Repeat: in.Get("repeat") != ""})
	case "resume":
		then, err = v.Client.Runs.Resume(v.ctx, id, messages.Control{Step: run.Path(strings.TrimSpace(in.Get("from"))), Model: strings.TrimSpace(in.Get("model"))})
	case "quarantine":
		err = v.Client.Runs.Quarantine(v.ctx, id, messages.Control{Reason: reason})
	case "release":
		err = v.Client.Runs.Release(v.ctx, id, messages.Control{Reason: reason})
	case "rebudget":
		var usd float64
		if usd, err = strconv.ParseFloat(in.Get("usd"), 64); err != nil || usd <= 0 || usd > 1e9 {
			return fmt.Errorf("%w: the budget is a number of dollars", errForm)
		}
		err = v.Client.Runs.Rebudget(v.ctx, id, messages.Control{Budget: &messages.Budget{MicroUSD: int64(usd * 1e6)}, Reason: reason})
	case "restart":
		then, err = restartRun(v, h)
	}
	if errors.Is(err, run.ErrState) || errors.Is(err, run.ErrMalformed) {
		status, _, text := statusOf(err)
		return showRun(v, status, h, &notice{Class: "fail", Icon: "fail", Bold: "Nothing was changed.", Text: text})
	}
	if err != nil {
		return err
	}
	return v.to(v.base() + "/runs/" + string(then))
}

// stopWithin bounds the wait for the end of a run that is stopped to be restarted.
const stopWithin = 10 * time.Second

// restartRun stops a run that is open, and continues from an earlier version of its session
// in a run of its own: with the form's message and model.
func restartRun(v *visit, h *history) (run.ID, error) {
	in := v.r.PostForm
	start := in.Get("from") == fromStart
	ref, err := session.ParseRef(v.Tenant, in.Get("from"))
	if !start && (err != nil || ref.Version == 0) {
		return "", fmt.Errorf("%w: a restart needs a session and a version", errForm)
	}
	if h.graph == nil || !start && !isOfTree(v, h, ref.ID) {
		return "", errNothing
	}
	var t messages.Task
	if start {
		was := taskOf(v, h)
		if t = was.Task; !was.Simple {
			return "", fmt.Errorf("the task names a sandbox or another session: %w; rerun it, or submit it by the command line", run.ErrState)
		}
	}
	t.Model = cmp.Or(strings.TrimSpace(in.Get("model")), t.Model)
	if text := strings.TrimSpace(in.Get("text")); text != "" {
		if t.Input, err = json.Marshal(text); err != nil {
			return "", fmt.Errorf("%w: the message: %w", errForm, err)
		}
	}
	if !h.info.State.Terminal() {
		if err := v.May(messages.VerbCancel); err != nil {
			return "", err
		}
		if err := v.Client.Runs.Cancel(v.ctx, h.info.Run, messages.Control{Reason: "restarted at " + in.Get("from")}); err != nil && !errors.Is(err, run.ErrState) {
			return "", err
		}
		if err := awaitEnd(v, h.info.Run); err != nil {
			return "", err
		}
	}
	if start {
		return v.Client.Submit(v.ctx, h.info.Workflow, t)
	}
	return v.Client.Sessions.Rewind(v.ctx, fmt.Sprintf("%s:%d", ref.ID, ref.Version), h.info.Workflow, t)
}

// isOfTree reports whether a session is of the tree of a run.
func isOfTree(v *visit, h *history, id session.ID) bool {
	s, err := h.graph.Session(session.Key{Tenant: v.Tenant, ID: id})
	return err == nil && s.Root == h.root.ID
}

// awaitEnd waits for the end of a run in the list of runs.
func awaitEnd(v *visit, id run.ID) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(stopWithin); ; {
		r, err := v.Client.Runs.Get(v.ctx, id)
		switch {
		case err != nil:
			return err
		case r.State.Terminal():
			return nil
		case time.Now().After(until):
			return fmt.Errorf("run %s has been asked to stop and has not ended: %w; restart it once it has", id, run.ErrState)
		}
		select {
		case <-tick.C:
		case <-v.ctx.Done():
			return v.ctx.Err()
		}
	}
}

// stopMany stops the chosen runs.
func (v *visit) stopMany() error {
	if err := v.May(messages.VerbCancel); err != nil {
		return err
	}
	ids := v.r.PostForm["run"]
	if len(ids) == 0 || len(ids) > mostStopped || fmt.Sprint(len(ids)) != v.r.PostForm.Get("count") && v.r.PostForm.Get("sure") == "" {
		return fmt.Errorf("%w: choose 1 to %d runs and confirm", errForm, mostStopped)
	}
	for _, id := range ids {
		if err := v.Sees(v.ctx, run.ID(id)); err != nil {
			return err
		}
		if err := v.Client.Runs.Cancel(v.ctx, run.ID(id), messages.Control{Reason: v.r.PostForm.Get("reason")}); err != nil && !errors.Is(err, run.ErrState) {
			return err
		}
	}
	return v.to(v.base() + "/runs")
}

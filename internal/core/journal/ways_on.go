package journal

import (
	"context"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// WaysOn is how a run that ended without success can be continued or done again, and the
// usage of each way if it takes as much as the run did.
type WaysOn struct {
	Step    run.Path      // at which it is resumed
	Kept    session.Usage // of the steps before it and of outcomes that stand
	Again   session.Usage // of the rest of the run
	Refused error         // the reason why it cannot be resumed; nil if it can
	Done    []*Step       // calls that have taken effect and must not happen twice
}

// WaysOn reads the ways on of a run that has ended.
func (v *Values) WaysOn(ctx context.Context, home session.Key, id run.ID) (*WaysOn, error) {
	h, err := v.Recording(ctx, home, id)
	if err == nil && h.Ended == nil {
		err = fmt.Errorf("run %s has not ended, it is %s: %w", id, h.LogState, run.ErrState)
	}
	if err != nil {
		return nil, err
	}
	w := &WaysOn{}
	_, _, w.Refused = v.resumptionAt(ctx, h, "")
	w.Step, w.Done = h.failedStep(), h.Done()
	_, standing := h.Standing(w.Step)
	w.Kept, _, _ = h.Journal.Spent(func(s *Step) bool {
		for _, b := range standing {
			if under := w.Step.Child(b.Name); s.Path.Within(under) {
				return h.inBranch(s.Path, under)
			}
		}
		return run.ComparePaths(s.Path, w.Step) >= 0 || h.inBranch(s.Path, "")
	})
	w.Again = h.Ended.Usage.Sub(w.Kept)
	return w, nil
}

// inBranch reports whether a step is in a branch of a fan-out below a path, whose gather
// step has its usage.
func (h *Recording) inBranch(p, under run.Path) bool {
	for _, f := range h.FanOuts {
		for _, b := range f.Branches {
			if (under == "" || f.Path.Within(under)) && p.Within(f.Path.Child(b.Name)) {
				return true
			}
		}
	}
	return false
}

// Done returns the recorded calls that have taken effect and must not happen twice.
func (h *Recording) Done() (all []*Step) {
	for _, s := range h.Journal.Recorded() {
		if s.Code == "" && (s.Kind == StepTool || s.Kind == StepDo) && s.Effect == "non_idempotent" {
			all = append(all, s)
		}
	}
	return all
}

// DoneBy returns the calls of a run, with those of its branches, that have taken effect and
// must not happen twice. For an open run they are those until now.
func (v *Values) DoneBy(ctx context.Context, h *Recording) ([]*Step, error) {
	err := v.addMade(ctx, h)
	return h.Done(), err
}

// listed bounds the calls that ListCalls names.
const listed = 5

// ListCalls describes calls: `"pay" at step 3 and "deploy" at step 5, which must not happen
// twice`.
func ListCalls(calls []*Step) string {
	var names []string
	for _, s := range calls[:min(len(calls), listed)] {
		names = append(names, fmt.Sprintf("%q at step %s", s.Name, s.Path))
	}
	if n := len(calls) - len(names); n > 0 {
		names = append(names, fmt.Sprintf("%d more", n))
	}
	text := names[0]
	if last := len(names) - 1; last > 0 {
		text = strings.Join(names[:last], ", ") + " and " + names[last]
	}
	return text + ", which must not happen twice"
}

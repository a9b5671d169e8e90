package pages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// fan is a fan-out with its branches: the winners first, then the failed, the open and the
// others.
type fan struct {
	From            string
	Branches        []branch
	Groups          []group // of branches with one state and reason
	Chips           []stateView
	Out, Took, Cost string
}

// group is the branches that share a state and a reason.
type group struct {
	Branches []branch
	Reason   string
}

type branch struct {
	Name, Href, Reason string
	State              stateView
	X, Width           int // of its lane, which is 120 wide
	Took, Cost         string
	order              int
}

// branchRun returns the run of a branch of a fan-out.
func branchRun(g *lineage.Graph, t session.Tenant, id session.ID) (run.ID, lineage.Run, bool) {
	s, err := g.Session(session.Key{Tenant: t, ID: id})
	if err != nil {
		return "", lineage.Run{}, false
	}
	for _, r := range s.Runs {
		if info, err := g.Run(t, r); err == nil && info.Home.ID == id && info.BranchOf != nil {
			return r, info, true
		}
	}
	return "", lineage.Run{}, false
}

// laneWidth is the width of a lane, in its own units.
const laneWidth = 120

// fanOf returns the branches that a step opened.
func fanOf(v *visit, g *lineage.Graph, rec *messages.Record) *fan {
	f := &fan{From: fmt.Sprintf("%s:%d", lineage.Short(rec.Session), rec.Version)}
	began, ended := rec.When(), rec.When()
	runs := make([]lineage.Run, len(rec.Branches))
	for i, b := range rec.Branches {
		_, runs[i], _ = branchRun(g, v.Tenant, b.Session)
		until := runs[i].Ended
		if until.IsZero() && runs[i].ID != "" {
			until = v.now
		}
		if until.After(ended) {
			ended = until
		}
	}
	whole := max(ended.Sub(began), time.Millisecond)
	f.Took = view.Took(whole)
	var used session.Usage
	for i, ref := range rec.Branches {
		r := &runs[i]
		b := branch{Name: cmp.Or(r.Branch, lineage.Short(ref.Session)), State: stateView{"queued", "not begun"}, order: 3}
		info, err := g.Session(session.Key{Tenant: v.Tenant, ID: ref.Session})
		if err == nil {
			b.Name, b.Reason = cmp.Or(r.Branch, info.Name, b.Name), info.Reason
			b.State, b.order = branchState(info.Disposition, r)
		}
		if r.ID != "" {
			b.Href = v.base() + "/runs/" + string(r.ID)
			from, until := cmp.Or(r.Started, r.Submitted), cmp.Or(r.Ended, v.now)
			b.X = min(int(laneWidth*from.Sub(began)/whole), laneWidth-2)
			b.Width = max(min(int(laneWidth*until.Sub(from)/whole), laneWidth-b.X), 2)
			b.Took, b.Cost = view.Took(max(until.Sub(from), 0)), usd(r.Usage)
			used = used.Add(r.Usage)
			if r.Reason != "" && (b.Reason == "" || b.State.Class == "fail") {
				b.Reason = r.Reason
			}
			if r.Code != "" && !strings.Contains(b.Reason, string(r.Code)) {
				b.Reason = string(r.Code) + ": " + b.Reason
			}
		} else {
			b.Href = v.base() + "/sessions/" + string(ref.Session)
		}
		f.Branches = append(f.Branches, b)
	}
	f.Cost = usd(used)
	slices.SortStableFunc(f.Branches, func(a, b branch) int {
		return cmp.Or(cmp.Compare(a.order, b.order), strings.Compare(a.State.Word, b.State.Word), strings.Compare(a.Reason, b.Reason))
	})
	f.summarize()
	return f
}

// summarize makes the groups, the chips and the outcome.
func (f *fan) summarize() {
	var words []string
	count := map[stateView]int{}
	for _, b := range f.Branches {
		if count[b.State]++; count[b.State] == 1 {
			f.Chips = append(f.Chips, b.State)
		}
		if n := len(f.Groups); n > 0 && b.order == 4 && f.Groups[n-1].Reason == b.Reason && f.Groups[n-1].Branches[0].State == b.State {
			f.Groups[n-1].Branches = append(f.Groups[n-1].Branches, b)
		} else {
			f.Groups = append(f.Groups, group{[]branch{b}, b.Reason})
		}
	}
	for i, s := range f.Chips {
		f.Chips[i].Word = fmt.Sprintf("%d %s", count[s], s.Word)
		words = append(words, f.Chips[i].Word)
	}
	f.Out = cmp.Or(strings.Join(words, ", "), excerpt.Counted(len(f.Branches), "branch"))
}

// branchState returns the state of a branch for its parent, and its order in a list.
func branchState(disposition string, r *lineage.Run) (stateView, int) {
	switch disposition {
	case "adopted", "merged":
		return stateView{"ok", disposition}, 0
	case "failed":
		return stateView{"fail", "failed"}, 1
	case lineage.Open, "":
		switch {
		case r.ID == "":
			return stateView{"queued", "not begun"}, 3
		case r.State == run.Succeeded:
			return stateView{"run", "joined"}, 2
		case r.State == run.Failed || r.State == run.TimedOut:
			return stateView{"fail", "failed"}, 1
		case r.State == run.Cancelled:
			return stateView{"lost", "cancelled"}, 4
		}
		return stateView{"run", string(r.State)}, 2
	}
	if r.State == run.Failed {
		return stateView{"fail", "failed"}, 1
	}
	return stateView{"lost", disposition}, 4
}

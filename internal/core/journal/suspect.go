package journal

import (
	"fmt"
	"strings"

	"github.com/rathcluster/rath/run"
)

// A task can end the process that executes it, together with the other runs of that
// process. A single death does not show which run caused it. All runs that executed
// there are therefore suspects.
const (
	// suspectAfter is the number of deaths without a new step after which a run is a
	// suspect. The first death is ignored: nodes are killed, restarted and
	// disconnected.
	suspectAfter = 2
	// firstGroup is the number of suspects that share a node at first; each further
	// death halves it.
	firstGroup = 4
	// maxAlone is the number of deaths of a run alone on its node after which it needs
	// a review.
	maxAlone = 3
	// maxDeath bounds the bytes of Claimed.Death.
	maxDeath = 1 << 10
)

// Deaths are the lost attempts of a run since its last new step: another claim found
// them at work.
type Deaths struct {
	All   int `json:"all,omitempty"`
	Alone int `json:"alone,omitempty"` // those of Group 1
	// Group is the maximum number of suspects, that attempt included, that the node of
	// the last attempt executed: 1 is alone, 0 has no bound.
	Group int    `json:"group,omitempty"`
	Node  string `json:"node,omitempty"` // the incarnation of the last attempt
}

// nodeDied reports whether the claim of a running run shows that the node of its last
// attempt died. The incarnation of that attempt lives if it makes the claim itself: it
// lost the log, not its process. Only a death that it reports, such as a panic, counts
// then.
func (d Deaths) nodeDied(incarnation, death string) bool {
	return d.Node != incarnation || death != ""
}

// died returns the deaths after the loss of the last attempt, with the Group of the
// next one.
func (d Deaths) died() Deaths {
	if d.All++; d.Group == 1 {
		d.Alone++
	}
	switch {
	case d.All < suspectAfter:
	case d.Group == 0:
		d.Group = firstGroup
	default:
		d.Group = max(1, d.Group/2)
	}
	return d
}

// guilty reports whether only the run itself explains its deaths.
func (d Deaths) guilty() bool { return d.Alone >= maxAlone }

// SuspectError is the answer to a claim of a suspect by a node that promises no Group.
// The node repeats the claim with a Group, and with the report of the last death.
type SuspectError struct {
	Run run.ID
	// Group is the maximum number of suspects on the node. With Guilty it is ignored:
	// the next claim sends the run to a review.
	Group  int
	Guilty bool
	Deaths Deaths
}

func (e *SuspectError) Error() string {
	return fmt.Sprintf("journal: run %s lost %d attempts without a new step: it shares a node with at most %d suspects", e.Run, e.Deaths.All, e.Group)
}

// Unwrap makes it run.ErrBusy: a claim may succeed later, or elsewhere.
func (e *SuspectError) Unwrap() error { return run.ErrBusy }

// judge returns the conditions that the deaths of a run put on its next claim, which
// incarnation makes: nil for none.
func (r *Record) judge(c Claim, incarnation string) (d Deaths, err error) {
	if d = r.Deaths; r.State == run.Running && d.nodeDied(incarnation, c.Death) {
		d = d.died()
	}
	if d.Group > 0 && (c.Group <= 0 || c.Group > d.Group && !d.guilty()) {
		err = &SuspectError{Run: r.ID, Group: d.Group, Guilty: d.guilty(), Deaths: d}
	}
	return d, err
}

// death returns the way in which a node ended, in the size that an event allows.
func death(words string) string {
	if len(words) > maxDeath {
		words = words[:maxDeath]
	}
	return strings.ToValidUTF8(words, "")
}

// poison is the reason why a run is not claimed again.
func (w *StateMachine) poison(d Deaths, death string) string {
	during := ""
	if asksForTools(w.value) {
		during = ", during the calls of tools"
	}
	if death == "" {
		death = "node lost"
	}
	return fmt.Sprintf("it lost its node %d times without a new step%s, the last %d times while it ran there alone; %s: %s", d.All, during, d.Alone, d.Node, death)
}

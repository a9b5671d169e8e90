package journal

import (
	"fmt"
	"strings"

	"github.com/rathcluster/rath/run"
)

// A task can end the process that executes it, and then takes the other runs of that
// process along. Who was to blame cannot be seen from one death: so the runs that were
// at work there are suspects, and not guilty.
const (
	// suspectAfter is how many deaths without a new step make a run a suspect. The first
	// one counts for nothing: nodes are killed, restarted and cut off.
	suspectAfter = 2
	// firstGroup is how many suspects share a node at first; each further death halves it.
	firstGroup = 4
	// maxAlone is how many deaths while a run had its node to itself send it to a review.
	maxAlone = 3
	// maxDeath bounds the bytes of Claimed.Death.
	maxDeath = 1 << 10
)

// Deaths are the attempts of a run that were lost since its last new step: another claim
// found them at work.
type Deaths struct {
	All   int `json:"all,omitempty"`
	Alone int `json:"alone,omitempty"` // those of Group 1
	// Group is how many suspects the node of the last attempt executed at most, that
	// attempt included: 1 is alone, 0 has no bound.
	Group int    `json:"group,omitempty"`
	Node  string `json:"node,omitempty"` // the incarnation of the last attempt
}

// died returns the deaths after the last attempt was lost, with the Group that the next
// one may belong to.
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

// guilty reports whether nothing but the run explains its deaths.
func (d Deaths) guilty() bool { return d.Alone >= maxAlone }

// SuspectError is the answer to a claim of a suspect by a node that promises no Group. The
// node claims it again with one, and with the report of the last death.
type SuspectError struct {
	Run run.ID
	// Group is the most that may share the node. With Guilty it does not matter: the next
	// claim sends the run to a review.
	Group  int
	Guilty bool
	Deaths Deaths
}

func (e *SuspectError) Error() string {
	return fmt.Sprintf("journal: run %s lost %d attempts without a new step: it shares a node with at most %d suspects", e.Run, e.Deaths.All, e.Group)
}

// Unwrap makes it run.ErrBusy: a claim may succeed later, or elsewhere.
func (e *SuspectError) Unwrap() error { return run.ErrBusy }

// judge returns the conditions that the deaths of a run put on its next claim: nil for none.
func (r *Record) judge(c Claim) (d Deaths, err error) {
	if d = r.Deaths; r.State == run.Running {
		d = d.died()
	}
	if d.Group > 0 && (c.Group <= 0 || c.Group > d.Group && !d.guilty()) {
		err = &SuspectError{Run: r.ID, Group: d.Group, Guilty: d.guilty(), Deaths: d}
	}
	return d, err
}

// death returns how a node ended as an event can hold it.
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

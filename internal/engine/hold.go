package engine

import (
	"fmt"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/tool"
)

// holds reports whether the run waits for a decision at the step instead of taking the
// failure of its last try, see run.Hold.
func holds(st *step, err error) bool {
	if st.ex.task.OnFailure != run.Hold || st.tries == nil || tool.IsPermanent(err) {
		return false
	}
	switch st.asked.Kind {
	case journal.StepDo, journal.StepModel:
		return transient(err) || run.CodeOf(err) == run.CodeBudget
	}
	return false // the failure of a tool is an answer for its agent
}

// hold records the outcome of the step's last try as that of a try, and returns the error
// that makes the run wait at the step.
func hold(st *step, d journal.StepCompleted) error {
	asked, n := st.asked, st.tries.failed+1
	st.asked = st.tries.at(n)
	d.Held = true
	d.Summary = excerpt.Clip(fmt.Sprintf("try %d fails, the next after a decision: %s", n, d.Error), 200)
	// The session stays as it is, and the messages for the call stay unread: the next try
	// has both again.
	st.beside, d.Inbox = true, 0
	_, err := st.commit(d)
	st.asked = asked
	if err != nil {
		return err
	}
	return st.fail(undecided(st, d.Error))
}

// tryPath is the path below which the failed tries of a step are recorded.
func tryPath(step run.Path) run.Path { return step.Child("try") }

// undecided is the review of a step whose last try failed.
func undecided(st *step, why string) *reviewError {
	return st.review(run.CodeReview, "%s %q at step %s failed for the last time: %s", st.asked.Kind, st.asked.Name, st.asked.Path, why)
}

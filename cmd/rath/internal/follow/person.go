package follow

import (
	"strings"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// Stopped prints the decision that a person has to make about a run that is no longer
// followed. o is as for ResumeWith.
func Stopped(a *app.App, id run.ID, seen Outcome, o *NodeFlags) error {
	if seen.Review != nil {
		review(a, id, seen.Review)
		return app.Silent(app.ExitRefused)
	}
	if seen.Stands {
		return app.Fail(app.ExitUnavailable, "run %s is open, and no node runs here: it continues with %q or %q", id, a.Hint("dev"), a.Hint("resume", string(id)))
	}
	a.Err.Println("parked: the waiting run uses no slot. Answer and resume it:")
	for _, r := range seen.Asked {
		if r.Kind == messages.KindReview {
			Person(a, r)
			continue
		}
		for _, command := range AnswerWith(a, r.Run, r.Waits) {
			a.Err.Println("  " + command)
		}
	}
	a.Err.Println("  " + ResumeWith(a, id, o))
	if o == nil {
		a.Err.Println("  with " + asBegun)
	}
	return app.Silent(app.ExitRefused)
}

// Person prints that a run waits for a person, while it is followed, and the commands
// that continue it.
func Person(a *app.App, r messages.Record) {
	who := "run " + string(r.Run)
	if r.Kind == messages.KindReview {
		a.Err.Note("")
		a.Err.Println(who + " " + a.Err.Paint(term.Yellow, "needs review:") + " " + term.Line(r.Reason, 400))
		Decisions(a, r.Run, r.Step, r.Revision)
		return
	}
	kind := r.Asks()
	what := ""
	for _, w := range r.Waits {
		if w.Kind == kind && w.Title != "" {
			what = ": " + term.Line(w.Title, 200)
		}
	}
	a.Err.Note("")
	a.Err.Println(who + " waits for " + kind + what)
	a.Err.Println("answer with\n  " + strings.Join(AnswerWith(a, r.Run, r.Waits), "\n  "))
}

// review prints the decision that a person has to make.
func review(a *app.App, id run.ID, r *messages.Record) {
	a.Err.Println(a.Err.Paint(term.Yellow, "needs review:") + " " + term.Line(r.Reason, 400))
	Decisions(a, id, r.Step, r.Revision)
}

// Decisions prints the commands that decide about a run that stopped, see DecideWith.
func Decisions(a *app.App, id run.ID, step run.Path, revision string) {
	a.Err.Println("a decision is required:")
	for _, command := range DecideWith(a, id, step, revision) {
		a.Err.Println("  " + command)
	}
}

// DecideWith returns the commands that decide about a run that stopped: at the step of
// a call, or, with the recorded revision, because the code differs.
func DecideWith(a *app.App, id run.ID, step run.Path, revision string) []string {
	var commands []string
	words := []string{run.Again, run.Fail}
	switch {
	case revision != "":
		words = []string{run.Pin, run.Again, run.Fail}
	case step != "":
		words = []string{run.Happened, run.Again, run.Fail}
	}
	for _, word := range words {
		commands = append(commands, a.Hint("answer", string(id), word, "--reason", "TEXT"))
	}
	return commands
}

// callAsks is the suffix of the steps at which a call asks for values.
const callAsks = ".answer"

// AnswerWith returns the commands that answer the first of the waits for a person. If a
// call asks, the command that shows the whole question and its values comes first.
func AnswerWith(a *app.App, id run.ID, waits []messages.Wait) []string {
	for _, w := range waits {
		switch {
		case w.Kind == run.WaitResponse:
			return []string{a.Hint("answer", string(id), "VALUE")}
		case w.Kind == run.WaitMessage:
			return []string{a.Hint("answer", string(id), "TEXT")}
		case w.Kind == run.WaitApproval && strings.HasSuffix(string(w.Step), callAsks):
			return []string{a.Hint("answer", string(id)), a.Hint("answer", string(id), "yes", "--edit", `'{"NAME":VALUE}'`)}
		case w.Kind == run.WaitApproval:
			return []string{a.Hint("answer", string(id), "yes")}
		}
	}
	return nil
}

package journal

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/internal/core/form"
	"github.com/rathcluster/rath/run"
)

// take returns the recorded form of an answer. It returns run.ErrMalformed if the
// question's schema rejects the answer: the answer is then not recorded, and the run
// keeps waiting.
func (w Wait) take(id run.ID, v SignalReceived) (string, error) {
	given := v.Value
	switch {
	case v.Kind == Refuse, w.Schema == "", w.Edits && given == "":
		return given, nil
	case v.Kind == Approve && given == "":
		given = "{}"
	}
	taken, why := form.Check(w.Schema, []byte(given))
	if why != "" {
		return "", fmt.Errorf("run %s asks %q at step %s for %s, and waits on: %s: %w; an answer is, for example: %s",
			id, cmp.Or(w.Title, w.Name), w.Path, cmp.Or(w.Wants(), "yes or no, with changes that fit"), why, run.ErrMalformed, w.command(id))
	}
	return string(taken), nil
}

// Wants describes the answer to the question in a few words; "" for a wait that accepts
// no value, or any.
func (w Wait) Wants() string {
	words := form.Words(w.Schema)
	switch {
	case w.Kind == run.WaitResponse:
		return words
	case w.Kind != run.WaitApproval || words == "" || w.Edits:
		return ""
	}
	return "yes, with " + words + ", or no"
}

// command is a command that answers the question.
func (w Wait) command(id run.ID) string {
	value := "VALUE"
	if e := form.Example(w.Schema); e != nil {
		value = string(e)
	}
	command := "rath answer " + string(id) + " " + string(w.Path) + " "
	if w.Kind == run.WaitApproval {
		return command + "yes --edit " + quoted(value)
	}
	return command + quoted(form.Written(value))
}

// quoted writes a word for a shell.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:/@", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

package lease

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/workspace"
)

// PutBack are the protected paths whose changes by a call were reverted.
type PutBack []workspace.LeftOut

// maxTold bounds the names of reverted paths shown to a model: a command that fetches a
// tree of packages may produce hundreds.
const maxTold = 5

const putBackNote = "these paths are protected and this run does not allow them, so they are again what they were before the call; " +
	"go on without them, or say that a person has to allow them by name"

// Amend adds the reverted paths to the body of a call's result.
func (b PutBack) Amend(body json.RawMessage) json.RawMessage {
	if len(b) == 0 {
		return body
	}
	type one struct {
		Is   string `json:"is"`
		Path string `json:"path"`
	}
	var note struct {
		More  int    `json:"more,omitempty"`
		Note  string `json:"note"`
		Paths []one  `json:"paths"`
	}
	for _, w := range b[:min(len(b), maxTold)] {
		note.Paths = append(note.Paths, one{w.Why, excerpt.Clip(w.Path, 200)})
	}
	note.More, note.Note = len(b)-len(note.Paths), putBackNote
	text, err := canonical.Marshal(note)
	if err != nil { // it holds strings, which always encode
		panic(err)
	}
	return Beside(body, "put_back", text)
}

// Beside adds a field to the body of a call's result. A body that is not an object
// becomes one, with the result in it.
func Beside(body json.RawMessage, name, text string) json.RawMessage {
	object, isObject := bytes.CutSuffix(body, []byte("}"))
	switch {
	case !isObject || body[0] != '{':
		return fmt.Appendf(nil, `{"result":%s,"%s":%s}`, body, name, text)
	case len(object) == 1:
		return fmt.Appendf(nil, `{"%s":%s}`, name, text)
	}
	return fmt.Appendf(nil, `%s,"%s":%s}`, object, name, text)
}

// Warning returns the same as text for the readers of the run, or "".
func (b PutBack) Warning() string {
	if len(b) == 0 {
		return ""
	}
	const shown = 2
	var names []string
	for _, w := range b[:min(len(b), shown)] {
		names = append(names, excerpt.Clip(w.Path, 60))
	}
	text := strings.Join(names, ", ")
	if more := len(b) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "put back " + text + ": no --allow names it"
}

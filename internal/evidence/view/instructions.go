package view

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/platform/term"
)

// Instructions are the texts that a model call received in addition to the rows of its
// session. A text that is no longer stored is "", with its digest.
type Instructions struct {
	List blob.Digest `json:"list"` // of the digests
	journal.Instructions
	PromptText string          `json:"prompt_text,omitempty"`
	AskText    string          `json:"ask_text,omitempty"`
	RemarkText string          `json:"remark_text,omitempty"`
	ToolTable  json.RawMessage `json:"tool_table,omitempty"`
	NotesFound json.RawMessage `json:"notes_found,omitempty"`
}

// ReadInstructions reads the texts in a list that a step names.
func ReadInstructions(ctx context.Context, b blob.Store, list blob.Digest) (*Instructions, error) {
	var failed error
	text := func(d blob.Digest) string {
		if d.IsZero() {
			return ""
		}
		r, err := b.Get(ctx, d)
		if errors.Is(err, blob.ErrNotFound) {
			return ""
		}
		var data []byte
		if err == nil {
			data, err = io.ReadAll(r)
			err = errors.Join(err, r.Close())
		}
		if err != nil {
			failed = fmt.Errorf("read the instructions of a model's call, blob %s: %w", d.Short(), err)
		}
		return string(data)
	}
	data := func(d blob.Digest) json.RawMessage {
		if s := text(d); json.Valid([]byte(s)) {
			return json.RawMessage(s)
		}
		return nil
	}
	named, _ := journal.ReadInstructions([]byte(text(list)))
	in := &Instructions{list, named, text(named.Prompt), text(named.Ask), text(named.Remark), data(named.Tools), data(named.Notes)}
	return in, failed
}

// tools returns the table of tools as a text: the name of each, with whole also its
// description and its schema.
func (in *Instructions) tools(whole bool) string {
	var table []struct {
		Name, Description string
		Schema            json.RawMessage
	}
	if json.Unmarshal(in.ToolTable, &table) != nil {
		return ""
	}
	names := make([]string, len(table))
	for i, t := range table {
		if names[i] = t.Name; whole {
			names[i] += "\n" + t.Description + "\n" + string(t.Schema)
		}
	}
	if whole {
		return strings.Join(names, "\n\n")
	}
	return strings.Join(names, ", ")
}

// shownLines is the maximum number of lines of a text in an answer.
const shownLines = 8

// write writes the texts, cut to a few lines each unless whole is set.
func (in *Instructions) write(w *term.Writer, whole bool) {
	unlisted := in.List
	if in.Instructions != (journal.Instructions{}) {
		unlisted = blob.Digest{}
	}
	for _, part := range []struct {
		name, text string
		digest     blob.Digest
	}{{"instructions", "", unlisted}, {"prompt", in.PromptText, in.Prompt}, {"tools", in.tools(whole), in.Tools}, {"question", in.AskText, in.Ask}, {"remark", in.RemarkText, in.Remark}} {
		if part.digest.IsZero() {
			continue
		}
		w.Println()
		w.Println(w.Dim(fmt.Sprintf("%s, %.12s", part.name, part.digest)))
		writeText(w, cmp.Or(part.text, "(not stored any more)"), whole, "; rath show --step has all")
	}
}

// writeText writes the first lines of a text, or all of them, indented.
func writeText(w *term.Writer, text string, whole bool, remedy string) {
	lines := term.Wrap(strings.TrimRight(term.Clean(text), "\n"), w.Width()-2)
	for i, l := range lines {
		if !whole && i == shownLines && len(lines) > shownLines+1 {
			w.Println(w.Dim("  ... " + Counted(int64(len(lines)-i), "more line") + remedy))
			break
		}
		w.Println(strings.TrimRight("  "+l, " "))
	}
}

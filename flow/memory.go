package flow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// note is what an agent recalled: text that follows the chunk at index After
// in the prompt. The journal holds its digest and the names of the notes; the
// text is a blob, so that it is never part of a session.
type note struct {
	After  int
	Text   string
	Digest blob.Digest
}

// recalled is what the journal records of a recall.
type recalled struct {
	After int         `json:"after"`
	Notes []string    `json:"notes"` // URIs
	Text  blob.Digest `json:"text,omitzero"`
}

const defaultRecall = 4

// recall searches the agent's memory for what the user said last. What is
// found goes behind everything that is in the session now, so that the prompt
// before it stays the same from turn to turn.
func (a *Agent) recall(ctx context.Context, s *session.Session) (note, error) {
	if a.Memory == "" {
		return note{}, nil
	}
	query := ""
	for i := s.Len() - 1; i >= 0 && query == ""; i-- {
		if c, _ := s.At(i); c.Kind() == session.User {
			query = strings.TrimSpace(c.Text())
		}
	}
	if query == "" {
		return note{}, nil
	}
	limit := a.Recall
	if limit == 0 {
		limit = defaultRecall
	}
	_, n, err := recallStep(ctx, *s, a.Memory, query, limit)
	return n, err
}

// Recall searches a memory and records what it found, by name. It returns at
// most limit notes, best first.
func Recall(ctx context.Context, name, query string, limit int) ([]memory.Hit, error) {
	hits, _, err := recallStep(ctx, session.Session{}, name, query, limit)
	return hits, err
}

func recallStep(ctx context.Context, s session.Session, name, query string, limit int) ([]memory.Hit, note, error) {
	st, err := begin(ctx, run.StepRecall, name, s, false, "read_only", query, fmt.Sprint(limit))
	if err != nil {
		return nil, note{}, err
	}
	defer st.end()
	blobs := st.ex.blobs()
	if st.decision == run.Replay {
		if st.record.Code != "" {
			return nil, note{}, st.record.Code.Err(st.record.Error)
		}
		var rec recalled
		if err := json.Unmarshal([]byte(st.record.Value), &rec); err != nil {
			return nil, note{}, st.fail(fmt.Errorf("%w: recall at %s: %w", run.ErrMismatch, st.asked.Path, err))
		}
		if rec.Text.IsZero() {
			return nil, note{}, nil
		}
		text, err := readBlob(ctx, blobs, rec.Text)
		if err != nil {
			return nil, note{}, st.fail(err)
		}
		var hits []memory.Hit
		if err := json.Unmarshal(text, &hits); err != nil {
			return nil, note{}, st.fail(fmt.Errorf("flow: recalled notes: %w", err))
		}
		return hits, renderNotes(hits, rec), nil
	}
	hits, err := st.find(query, limit)
	err, ok := st.outcome(err)
	if !ok {
		return nil, note{}, err
	}
	if err != nil {
		if _, commitErr := st.commit(run.Done{Code: run.CodeOf(err), Error: clip(err.Error(), 1<<10)}); commitErr != nil {
			return nil, note{}, commitErr
		}
		return nil, note{}, err
	}
	rec := recalled{After: s.Len(), Notes: []string{}}
	for _, h := range hits {
		rec.Notes = append(rec.Notes, h.URI)
	}
	if len(hits) > 0 {
		text, err := json.Marshal(hits)
		if err != nil {
			return nil, note{}, st.fail(err)
		}
		ref, err := blobs.Put(ctx, bytes.NewReader(text))
		if err != nil {
			return nil, note{}, st.fail(fmt.Errorf("flow: keep recalled notes: %w", err))
		}
		rec.Text = ref.Digest
	}
	value, err := session.Marshal(rec)
	if err != nil {
		return nil, note{}, st.fail(err)
	}
	if _, err := st.commitBeside(run.Done{Value: value, Summary: fmt.Sprintf("recalls %s", count(len(hits), "note"))}); err != nil {
		return nil, note{}, err
	}
	return hits, renderNotes(hits, rec), nil
}

// commitBeside records a step that reads a session without adding to it: the
// session's pending edits stay pending.
func (st *step) commitBeside(d run.Done, content ...session.Event) (run.Ack, error) {
	st.s = session.Session{}
	return st.commit(d, content...)
}

func (st *step) find(query string, limit int) ([]memory.Hit, error) {
	m, err := st.memory(st.asked.Name)
	if err != nil {
		return nil, err
	}
	hits, err := m.Find(st.ctx, memory.Query{Text: query, Limit: limit})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(hits, st.quarantined), nil
}

// quarantined reports whether a note is of a session that was set apart.
func (st *step) quarantined(h memory.Hit) bool {
	k := session.Key{Tenant: st.ex.home.Tenant, ID: session.ID(h.Session)}
	if h.Session == "" || st.ex.rt.Values == nil || k.Valid() != nil {
		return false
	}
	q, err := st.ex.rt.Values.Quarantined(st.ctx, k)
	return err == nil && q != nil
}

func (st *step) memory(name string) (memory.Store, error) {
	if st.ex.rt.Memory == nil {
		return nil, errors.New("flow: no memory on this node: set flow.Runtime.Memory")
	}
	return st.ex.rt.Memory(st.ctx, st.ex.home.Tenant, name)
}

func renderNotes(hits []memory.Hit, rec recalled) note {
	if len(hits) == 0 {
		return note{}
	}
	var b strings.Builder
	b.WriteString("Notes from memory:")
	for _, h := range hits {
		fmt.Fprintf(&b, "\n- [%s] %s", h.URI, h.Snippet)
	}
	return note{After: rec.After, Text: b.String(), Digest: rec.Text}
}

func readBlob(ctx context.Context, b blob.Store, d blob.Digest) ([]byte, error) {
	r, err := b.Get(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("flow: read blob %s: %w", d.Short(), err)
	}
	defer r.Close()
	return io.ReadAll(r)
}

// Remember writes a note into a memory and returns its name. The name comes
// from the step, so that a repeated attempt replaces its own note.
func Remember(ctx context.Context, name, category, text string) (uri string, err error) {
	st, err := begin(ctx, run.StepRemember, name, session.Session{}, false, "idempotent", category, text)
	if err != nil {
		return "", err
	}
	defer st.end()
	if st.decision == run.Replay {
		return st.record.Value, st.record.Code.Err(st.record.Error)
	}
	uri, err = memory.NoteURI(memory.User, category, string(st.ex.id)+"/"+string(st.asked.Path))
	if err == nil {
		var m memory.Store
		if m, err = st.memory(name); err == nil {
			err = m.Write(ctx, uri, text)
		}
	}
	return st.recordMemory(uri, fmt.Sprintf("remembers %q", clip(firstLine(text), 80)), err)
}

// recordMemory commits what a step that writes to a memory came to.
func (st *step) recordMemory(uri, summary string, err error) (string, error) {
	err, ok := st.outcome(err)
	if !ok {
		return "", err
	}
	d := run.Done{Value: uri, Summary: summary}
	if err != nil {
		d = run.Done{Code: run.CodeOf(err), Error: clip(err.Error(), 1<<10)}
	}
	if _, commitErr := st.commit(d); commitErr != nil {
		return "", commitErr
	}
	return uri, err
}

// Archive stores what was said in a session in a memory, where later recalls
// find it, and returns the name it is listed under.
func Archive(ctx context.Context, s session.Session, name string) (uri string, err error) {
	st, err := begin(ctx, run.StepRemember, name, s, false, "idempotent", "archive")
	if err != nil {
		return "", err
	}
	defer st.end()
	if st.decision == run.Replay {
		return st.record.Value, st.record.Code.Err(st.record.Error)
	}
	m, err := st.memory(name)
	if err == nil {
		archiver, ok := m.(memory.Archiver)
		if !ok {
			err = fmt.Errorf("flow: memory %q keeps no archives", name)
		} else {
			var msgs []memory.Message
			for _, c := range s.Chunks() {
				if c.Kind() != session.ToolResult && strings.TrimSpace(c.Text()) != "" {
					msgs = append(msgs, memory.Message{Role: string(c.Kind()), Text: c.Text()})
				}
			}
			uri, err = archiver.Archive(ctx, string(s.Key().ID), string(st.ex.id)+"/"+string(st.asked.Path), msgs)
		}
	}
	st.s = session.Session{}
	return st.recordMemory(uri, "archives the session", err)
}

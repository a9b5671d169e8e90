package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/chain"
	"github.com/rathcluster/rath/internal/engine/recall"
	"github.com/rathcluster/rath/internal/engine/transcript"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

const defaultRecall = 4

// recall searches the agent's memory for the user's last message. The notes follow the
// present end of the session, so that the prompt before them stays the same from turn to
// turn.
func (a *agent) recall(ctx context.Context, s *session.Session) (transcript.Note, error) {
	if a.Memory == "" {
		return transcript.Note{}, nil
	}
	query := ""
	for i := s.Len() - 1; i >= 0 && query == ""; i-- {
		if c, _ := s.At(i); c.Kind() == session.User {
			query = strings.TrimSpace(c.Text())
		}
	}
	if query == "" {
		return transcript.Note{}, nil
	}
	limit := a.Recall
	if limit == 0 {
		limit = defaultRecall
	}
	_, n, err := recallNotes(ctx, a.p, *s, a.Memory, query, limit)
	return n, err
}

// memoryStep is a step that reads or writes a memory.
type memoryStep struct{ *step }

// beginMemory opens the next step of a place, which reads or writes a memory.
func beginMemory(ctx context.Context, p *place, kind, name string, s session.Session, effect tool.Effect, args ...string) (memoryStep, error) {
	st, err := p.begin(ctx, kind, name, s, false, effect.String(), args...)
	return memoryStep{st}, err
}

// Recall is flow.Recall.
func (p *place) Recall(ctx context.Context, name, query string, limit int) ([]memory.Hit, error) {
	hits, _, err := recallNotes(ctx, p, session.Session{}, name, query, limit)
	return hits, err
}

// recallNotes searches a memory in a step, and returns the notes with their part of a prompt.
func recallNotes(ctx context.Context, p *place, s session.Session, name, query string, limit int) ([]memory.Hit, transcript.Note, error) {
	st, err := beginMemory(ctx, p, journal.StepRecall, name, s, tool.ReadOnly, query, fmt.Sprint(limit))
	if err != nil {
		return nil, transcript.Note{}, err
	}
	defer st.end()
	var hits []memory.Hit
	var rec recall.Record
	err = st.make(func() error {
		err := st.decode(&rec)
		if err == nil && !rec.Text.IsZero() {
			hits, err = st.recalledNotes(rec.Text)
		}
		if st.record.Code != "" {
			return err
		}
		return st.fail(err)
	}, func() (d journal.StepCompleted, err error) {
		m, err := st.memory(st.asked.Name)
		if err != nil {
			return d, came(err)
		}
		hits, rec, d.Summary, err = (&recall.Search{Store: m, Quarantined: st.whyQuarantined}).Find(st.ctx, query, limit)
		if err != nil {
			return d, came(err)
		}
		st.beside, rec.After = true, s.Len()
		if err := st.keepNotes(hits, &rec); err != nil {
			return d, err
		}
		d.Value, err = canonical.Marshal(rec)
		return d, err
	})
	if err != nil {
		return nil, transcript.Note{}, err
	}
	return hits, recall.Render(hits, rec), nil
}

// keepNotes stores the notes that a recall found.
func (st memoryStep) keepNotes(hits []memory.Hit, rec *recall.Record) error {
	rec.Notes = []string{}
	for _, h := range hits {
		rec.Notes = append(rec.Notes, h.URI)
	}
	if len(hits) == 0 {
		return nil
	}
	text, err := json.Marshal(hits)
	if err != nil {
		return err
	}
	ref, err := st.ex.boxes.blobs().Put(st.ctx, bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("flow: keep recalled notes: %w: %w", session.ErrUnavailable, err)
	}
	rec.Text = ref.Digest
	return nil
}

// recalledNotes reads the notes of a recorded recall.
func (st memoryStep) recalledNotes(d blob.Digest) (hits []memory.Hit, err error) {
	text, err := readBlob(st.ctx, st.ex.boxes.blobs(), d)
	switch {
	case errors.Is(err, blob.ErrNotFound), errors.Is(err, blob.ErrCorrupt):
		return nil, err
	case err != nil: // they may be readable later
		return nil, fmt.Errorf("%w: %w", session.ErrUnavailable, err)
	}
	if err := json.Unmarshal(text, &hits); err != nil {
		return nil, fmt.Errorf("flow: recalled notes: %w", err)
	}
	return hits, nil
}

// whyQuarantined returns the reason why nothing from a session may be recalled, or "". A
// session whose log cannot be read is treated as quarantined. The error is that of a step
// that was cut off.
func (st memoryStep) whyQuarantined(id session.ID) (why string, err error) {
	k := session.Key{Tenant: st.ex.home.Tenant, ID: id}
	if id == "" || k.Valid() != nil {
		return "", nil // not a session that could be quarantined
	}
	q, err := st.ex.rt.Values.Quarantined(st.ctx, k)
	switch {
	case st.ctx.Err() != nil:
		return "", context.Cause(st.ctx)
	case errors.Is(err, session.ErrArchived):
		return "", nil // a quarantined session is never archived
	case err != nil:
		return excerpt.Clip("whether the session is quarantined is not known: "+err.Error(), 300), nil
	case q != nil:
		return excerpt.Clip("the session is quarantined: "+q.Reason, 300), nil
	}
	return "", nil
}

// origin returns this step as the origin of the notes that it writes.
func (st memoryStep) origin() memory.Origin {
	return memory.Origin{Session: string(st.log.ID), Version: uint64(st.ex.forks.versionOf(st.log)), Run: string(st.ex.id), Step: string(st.asked.Path)}
}

func (st memoryStep) memory(name string) (memory.Store, error) {
	if st.ex.rt.Memory == nil {
		return nil, errors.New("flow: no memory on this node: set inprocess.Runner.Memory")
	}
	st.ctx, st.vectors = chain.CountVectors(st.ctx)
	return st.ex.rt.Memory(st.ctx, st.ex.home.Tenant, name)
}

func readBlob(ctx context.Context, b blob.Store, d blob.Digest) ([]byte, error) {
	r, err := b.Get(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("flow: read blob %s: %w", d.Short(), err)
	}
	defer r.Close()
	return io.ReadAll(r)
}

// Remember is flow.Remember.
func (p *place) Remember(ctx context.Context, name, category, text string) (uri string, err error) {
	st, err := beginMemory(ctx, p, journal.StepRemember, name, session.Session{}, tool.Idempotent, category, text)
	if err != nil {
		return "", err
	}
	defer st.end()
	summary := fmt.Sprintf("remembers %q", excerpt.Clip(excerpt.FirstLine(text), 80))
	return st.writes(summary, func(m memory.Store) (uri string, err error) {
		if uri, err = notebook.NoteURI(notebook.User, category, string(st.ex.id)+"/"+string(st.asked.Path)); err == nil {
			err = m.Write(st.ctx, uri, text, st.origin())
		}
		return uri, err
	})
}

// writes executes a step that writes to a memory, and returns the name of the note.
func (st memoryStep) writes(summary string, write func(memory.Store) (uri string, err error)) (uri string, err error) {
	err = st.make(func() error { uri = st.record.Value; return st.record.Code.Err(st.record.Error) }, func() (d journal.StepCompleted, err error) {
		m, err := st.memory(st.asked.Name)
		if err == nil {
			uri, err = write(m)
		}
		if err == nil {
			d.Value, d.Summary = uri, summary
		}
		return d, came(err)
	})
	return uri, err
}

// ArchiveSession is flow.ArchiveSession.
func (p *place) ArchiveSession(ctx context.Context, s session.Session, name string) (uri string, err error) {
	st, err := beginMemory(ctx, p, journal.StepRemember, name, s, tool.Idempotent, "archive")
	if err != nil {
		return "", err
	}
	defer st.end()
	st.beside = true
	return st.writes("archives the session", func(m memory.Store) (string, error) {
		archiver, ok := m.(memory.Archiver)
		if !ok {
			return "", fmt.Errorf("flow: memory %q keeps no archives", name)
		}
		var msgs []memory.Message
		for _, c := range s.Chunks() {
			if c.Kind() != session.ToolResult && strings.TrimSpace(c.Text()) != "" {
				msgs = append(msgs, memory.Message{Role: string(c.Kind()), Text: c.Text()})
			}
		}
		return archiver.Archive(st.ctx, string(s.Key().ID), string(st.ex.id)+"/"+string(st.asked.Path), msgs, st.origin())
	})
}

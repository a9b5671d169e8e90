package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/agents/guide"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/session"
)

// AddWorkspaceGuide implements flow.AddWorkspaceGuide. The contents of a head never
// change, so each execution adds the same instructions; the next step commits them.
func (p *place) AddWorkspaceGuide(ctx context.Context, s session.Session) (session.Session, bool, error) {
	for _, c := range s.Chunks() {
		if is, skills := guide.IsText(c.Text()); is && c.Kind() == session.User {
			return s, skills, nil
		}
	}
	at := s.Placement()
	if at.Backend == "" || at.Head.IsZero() && at.Spec == "" {
		return s, false, nil
	}
	if at.Head.IsZero() { // a directory of this host, not ingested yet
		var err error
		if s, err = takeIn(ctx, p, s); err != nil {
			return s, false, err
		}
		if at = s.Placement(); at.Head.IsZero() {
			return s, false, nil
		}
	}
	g, err := guide.Read(ctx, p.sc.ex.boxes.blobs(), at.Head)
	switch {
	case err == nil:
	case errors.Is(err, blob.ErrNotFound), errors.Is(err, blob.ErrCorrupt), errors.Is(err, manifest.ErrMalformed):
		return s, false, fmt.Errorf("flow: read what the workspace says for agents: %w", err)
	default: // they may be readable later
		return s, false, fmt.Errorf("flow: read what the workspace says for agents: %w: %w", session.ErrUnavailable, err)
	}
	text := g.Text()
	if text == "" {
		return s, false, nil
	}
	return s.With(session.UserText(text).Of(session.Origin{Agent: journal.ByWorkspace})), len(g.Skills) > 0, nil
}

// takeIn makes the step that creates the first head of a session.
func takeIn(ctx context.Context, p *place, s session.Session) (session.Session, error) {
	o, err := openStep(ctx, p, journal.StepRequest{Kind: journal.StepOpen, Name: s.Placement().Backend}, s)
	if err != nil {
		return s, err
	}
	defer o.release()
	return o.s, nil // the tools that need the sandbox report to the model why it was rejected
}

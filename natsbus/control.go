package natsbus

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// queueGroup is what the nodes share that answer the same requests.
const queueGroup = "rath"

// ServeControl answers control requests, each by one of the nodes, once apply
// has made the fact durable.
func (c *Conn) ServeControl(ctx context.Context, apply func(ctx context.Context, s run.Signal) error) (*Service, error) {
	return c.serve(ctx, messages.ControlPrefix+">", queueGroup, func(ctx context.Context, m *nats.Msg) any {
		note, err := c.control(ctx, m, apply)
		a := messages.AnswerOf(err)
		a.Note = note
		return a
	})
}

func (c *Conn) control(ctx context.Context, m *nats.Msg, apply func(ctx context.Context, s run.Signal) error) (note string, err error) {
	tenant, id, verb, ok := messages.ParseControlSubject(m.Subject)
	if !ok {
		return "", fmt.Errorf("subject %q: %w: request rath.ctl.<tenant>.<run>.<verb>", m.Subject, run.ErrMalformed)
	}
	if strings.HasPrefix(verb, "tool.") {
		return "", c.controlTool(ctx, tenant, id, verb, m.Data)
	}
	body, err := messages.DecodeControl(m.Data)
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(verb, "dlq.") {
		return c.controlDead(ctx, tenant, id, verb, body)
	}
	if verb == messages.VerbRerun {
		if body.ID == "" { // whoever asks without one asks for another run each time
			body.ID = rand.Text()
		}
		again, err := c.rerun(ctx, tenant, run.ID(id), body.ID)
		return string(again), err
	}
	// The verb and its body are checked before the run is looked for.
	s, err := body.Signal(session.Key{Tenant: tenant}, run.ID(id), verb)
	if err != nil {
		return "", err
	}
	if s.Run == "" {
		// The session may be named by its alias.
		if s.To.ID, err = c.resolveSession(ctx, tenant, string(s.To.ID), false); err != nil {
			return "", err
		}
		return "", apply(ctx, s)
	}
	home, err := c.runSession(ctx, tenant, s.Run)
	if err == nil {
		s.To = home
		err = apply(ctx, s)
	}
	if !errors.Is(err, run.ErrUnknownRun) || s.Cancel == nil {
		return "", err
	}
	return c.cancelEarly(ctx, tenant, s, apply)
}

// cancelEarly cancels a run that no log holds. The note that it leaves is read
// by whoever takes the task in, before and after he does.
func (c *Conn) cancelEarly(ctx context.Context, tenant session.Tenant, s run.Signal, apply func(ctx context.Context, s run.Signal) error) (string, error) {
	subject := runAliasSubject(tenant, s.Run)
	for {
		have, revision, err := readAlias[runAlias](ctx, c, subject)
		switch {
		case err != nil:
			return "", err
		case have.Refused != "":
			return "", fmt.Errorf("run %s: %w: its task was refused", s.Run, run.ErrState)
		case have.Cancelled == nil:
			have.Cancelled = s.Cancel
			_, _, stored, err := putAlias(ctx, c, subject, revision, have)
			if err != nil {
				return "", err
			}
			if !stored {
				continue
			}
		}
		// Whoever left the note may have got no further.
		if have.Session == "" {
			return noteEarly, c.putCancelled(ctx, tenant, s.Run)
		}
		// The log may hold it by now; if not, the intake sees the note.
		s.To = session.Key{Tenant: tenant, ID: have.Session}
		if err := apply(ctx, s); !errors.Is(err, run.ErrUnknownRun) {
			return "", err
		}
		return noteEarly, nil
	}
}

const noteEarly = "cancelled before a session held the run"

// putCancelled stores and tells how a run ended that was cancelled before a log
// held it. Who takes the cancel does that, and who takes the task; a client may
// hear both, so they say the same to the byte: what the note says.
func (c *Conn) putCancelled(ctx context.Context, tenant session.Tenant, id run.ID) error {
	subject := runAliasSubject(tenant, id)
	m, err := c.leaderLast(ctx, "KV_"+BucketAlias, subject)
	var note runAlias
	if err == nil {
		err = json.Unmarshal(m.Data, &note)
	}
	if err == nil && note.Cancelled == nil {
		err = errNoMessage
	}
	if err != nil {
		return fmt.Errorf("natsbus: read %s: %w", subject, err)
	}
	reason := note.Cancelled.Reason
	if reason == "" {
		reason = noteEarly
	}
	r := messages.RefusedResult(id, "", messages.Error{Code: run.CodeCancelled, Text: reason}, m.Time)
	r.State = run.Cancelled
	return c.putResult(ctx, tenant, r, true)
}

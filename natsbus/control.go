package natsbus

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

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
		a := messages.AnswerOf(unanswered(ctx, err))
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
		var again run.ID
		err := c.ofBegun(ctx, tenant, run.ID(id), func() (err error) {
			again, err = c.rerun(ctx, tenant, run.ID(id), body.ID)
			return err
		})
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
	// A quarantine is about the session, which may not be there yet either.
	unborn := errors.Is(err, run.ErrUnknownRun) || s.Quarantine != nil && errors.Is(err, session.ErrNotFound)
	switch {
	case !unborn:
		return "", err
	case s.Cancel == nil:
		return "", c.notBegun(ctx, tenant, s, err, apply)
	}
	return c.cancelEarly(ctx, tenant, s, body.Submitted, apply)
}

// notBegun asks again for what a run has to have begun for, once no task of its
// id waits: whoever has taken it since the first try has brought it to its log
// before. Else it tells a run whose task waits, or was refused or cancelled, from
// one that nobody submitted.
func (c *Conn) notBegun(ctx context.Context, tenant session.Tenant, s run.Signal, unknown error, apply func(ctx context.Context, s run.Signal) error) error {
	waits, err := c.taskWaits(ctx, tenant, s.Run)
	switch {
	case err != nil:
		return err
	case waits:
		return fmt.Errorf("run %s: %w: its task waits to be taken by a node; it can be cancelled, and all else asked for once it has begun", s.Run, run.ErrState)
	}
	have, _, err := readAlias[runAlias](ctx, c, runAliasSubject(tenant, s.Run))
	switch {
	case err != nil:
		return err
	case have.Refused != "":
		return fmt.Errorf("run %s: %w: its task was refused", s.Run, run.ErrState)
	case have.Session != "":
		s.To = session.Key{Tenant: tenant, ID: have.Session}
		return apply(ctx, s)
	case have.Cancelled != nil:
		return fmt.Errorf("run %s: %w: it was cancelled before it began", s.Run, run.ErrState)
	}
	return unknown
}

// ofBegun does what needs a run that has begun, and says of one that has not how it
// stands.
func (c *Conn) ofBegun(ctx context.Context, tenant session.Tenant, id run.ID, do func() error) error {
	err := do()
	if errors.Is(err, run.ErrUnknownRun) {
		err = c.notBegun(ctx, tenant, run.Signal{Run: id}, err, func(context.Context, run.Signal) error { return do() })
	}
	return err
}

// cancelEarly cancels a run that no log holds. The note that it leaves is read by
// whoever takes the task in, before and after he does. It is left for a task that
// waits, and unless only submitted ones are meant also for one that may come: the
// publisher picks the id, and his cancel may overtake his task. Which of the two it
// is for is looked up only if that decides anything. For a branch none is left.
func (c *Conn) cancelEarly(ctx context.Context, tenant session.Tenant, s run.Signal, submitted bool, apply func(ctx context.Context, s run.Signal) error) (string, error) {
	subject := runAliasSubject(tenant, s.Run)
	submitted = submitted || branchID.MatchString(string(s.Run))
	if s.Cancel.ID == "" { // else the log could not tell it from another one, and refuse it
		cancel := *s.Cancel
		cancel.ID = rand.Text()
		s.Cancel = &cancel
	}
	for {
		have, revision, err := readAlias[runAlias](ctx, c, subject)
		if err == nil && revision == 0 && submitted { // all that wait are read for that
			var waits bool
			if waits, err = c.taskWaits(ctx, tenant, s.Run); err == nil && !waits {
				// Whoever has taken it since then has made the entry before.
				have, revision, err = readAlias[runAlias](ctx, c, subject)
				if err == nil && revision == 0 {
					return "", fmt.Errorf("run %s: %w: no log holds it, and no task of this id waits", s.Run, run.ErrUnknownRun)
				}
			}
		}
		told := noteEarly
		if !submitted && have.Digest == "" {
			told = noteUnborn
		}
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
			return told, c.putCancelled(ctx, tenant, s.Run)
		}
		// The log may hold it by now; if not, the intake sees the note.
		s.To = session.Key{Tenant: tenant, ID: have.Session}
		if err := apply(ctx, s); !errors.Is(err, run.ErrUnknownRun) {
			return "", err
		}
		return told, nil
	}
}

// branchID is what the ids of branches look like, which session.Minter.Child
// derives. Their tasks come from the log of the run that opened them, and whoever
// takes one looks for no note.
var branchID = regexp.MustCompile(`^[0-9a-f]{20}-[0-9a-z]+-[0-9a-z]+$`)

// lookFor bounds the reading of the tasks of a tenant that wait. A thousand may
// wait for each workflow, and they are read one by one.
const lookFor = 10 * time.Second

// taskWaits reports whether the stream of tasks holds one of this id: nobody has
// taken it, or a log does not hold it yet. The leader is asked, so that a task
// that was acknowledged is not missed.
func (c *Conn) taskWaits(ctx context.Context, tenant session.Tenant, id run.ID) (bool, error) {
	began := time.Now()
	for from := uint64(1); ; {
		m, err := c.leaderNext(ctx, StreamTasks, prefixTask+string(tenant)+".>", from)
		switch {
		case errors.Is(err, errNoMessage):
			return false, nil
		case err != nil:
			return false, err
		case idOf(m.Data) == id:
			return true, nil
		case time.Since(began) > lookFor:
			return false, fmt.Errorf("run %s: %w: no log holds it, and so many tasks wait that %v are too short to look for it among them; try again later",
				id, run.ErrBusy, lookFor)
		}
		from = m.Seq + 1
	}
}

const (
	noteEarly  = "cancelled before a session held the run"
	noteUnborn = "no task of this id was taken yet; one that waits or comes ends as cancelled"
)

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

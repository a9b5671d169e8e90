package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// queueGroup is the queue group of the nodes that answer the same requests.
const queueGroup = "rath"

// ServeControl answers control requests, each by one of the nodes, once apply has made the
// fact durable. It imports files with take, and writes notes to memories, unless they are
// nil.
func (c *Conn) ServeControl(ctx context.Context, apply func(ctx context.Context, s journal.Signal) error, take TakeOver, memories Memories) (*conn.Service, error) {
	imports := &importer{c, take, make(chan struct{}, 1)}
	return c.Conn.Serve(ctx, messages.ControlPrefix+">", queueGroup, func(ctx context.Context, m *nats.Msg) any {
		if of, ok := wire.ParseControlSubject(m.Subject); ok && strings.HasPrefix(of.Verb, "archive.") {
			return imports.answer(ctx, of)
		} else if ok && strings.HasPrefix(of.Verb, "lineage.") {
			return c.controls.controlRepair(ctx, of)
		} else if ok && strings.HasPrefix(of.Verb, "quota.") {
			return wire.AnswerOf(unanswered(ctx, c.controls.controlQuota(ctx, of, m.Data, apply)))
		} else if ok && strings.HasPrefix(of.Verb, "memory.") {
			return wire.AnswerOf(unanswered(ctx, c.controls.controlMemory(ctx, of, m.Data, memories)))
		}
		note, err := c.controls.control(ctx, m, apply)
		a := wire.AnswerOf(unanswered(ctx, err))
		a.Note = note
		return a
	})
}

// controls carries out control requests.
type controls struct{ all *Conn }

func (c *controls) control(ctx context.Context, m *nats.Msg, apply func(ctx context.Context, s journal.Signal) error) (note string, err error) {
	of, ok := wire.ParseControlSubject(m.Subject)
	if !ok {
		return "", fmt.Errorf("subject %q: %w: request rath.ctl.<tenant>.<user>.<run>.<verb>, with the NATS user of the connection, or %s without one", m.Subject, run.ErrMalformed, messages.UserAnonymous)
	}
	tenant, id, verb := of.Tenant, of.ID, of.Verb
	if strings.HasPrefix(verb, "tool.") {
		return "", c.controlTool(ctx, tenant, id, verb, m.Data)
	}
	if verb == messages.VerbNodeDrain {
		return "", c.drainOf(ctx, of)
	}
	if strings.HasPrefix(verb, "blob.") {
		return "", c.controlBlob(ctx, tenant, id, verb, m.Data)
	}
	body, err := messages.DecodeControl(m.Data)
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(verb, "dlq.") {
		return c.controlDead(ctx, of, body)
	}
	if verb == messages.VerbRerun || verb == messages.VerbResume {
		if err := body.Check(verb); err != nil {
			return "", err
		}
		submit := c.rerun
		if verb == messages.VerbResume {
			submit = c.resume
		}
		if body.ID == "" { // a request without one asks for another run each time
			body.ID = rand.Text()
		}
		var again run.ID
		err := c.ofBegun(ctx, tenant, run.ID(id), func() (err error) {
			again, err = submit(ctx, tenant, run.ID(id), of.User, body)
			return err
		})
		return string(again), err
	}
	// The verb and its body are checked before the run is looked up.
	s, err := translate.Signal(body, session.Key{Tenant: tenant}, of.User, run.ID(id), verb)
	if err != nil {
		return "", err
	}
	if s.Event != nil {
		return "", c.publish(ctx, run.ID(id), s, apply)
	}
	if s.Cancel != nil && s.Cancel.ID == "" { // otherwise no log could distinguish it from another one
		s.Cancel.ID = rand.Text()
	}
	if s.Run == "" {
		// The session may be named by its alias.
		if s.To.ID, err = c.all.Logs.ResolveSession(ctx, tenant, string(s.To.ID), false); err != nil {
			return "", err
		}
		return "", apply(ctx, s)
	}
	home, err := c.all.Logs.RunSession(ctx, tenant, s.Run)
	if err == nil {
		s.To = home
		err = apply(ctx, s)
	}
	_, cleanup := run.CleanedBy(s.Run)
	switch {
	case cleanup, !unborn(s, err):
		return "", err
	case s.Cancel == nil:
		return "", c.notBegun(ctx, tenant, s, err, apply)
	}
	return c.cancelEarly(ctx, tenant, s, body.Submitted, apply)
}

// publish brings an event to its log.
func (c *controls) publish(ctx context.Context, id run.ID, s journal.Signal, apply func(ctx context.Context, s journal.Signal) error) (err error) {
	e := s.Event.Published
	if id != messages.EventID {
		return fmt.Errorf("%s %s: %w: events are published on rath.ctl.<tenant>.<user>.%s.%s", messages.VerbPublish, id, run.ErrMalformed, messages.EventID, messages.VerbPublish)
	}
	if e.ID == "" {
		e.ID = rand.Text()
	}
	if s.To.ID, err = journal.EventLog(c.all.Logs.Minter(), s.To.Tenant, e.Name, e.Key); err != nil {
		return err
	}
	return apply(ctx, s)
}

// unborn reports whether no log holds the signal's run. A quarantine is about the session,
// which may not exist yet either.
func unborn(s journal.Signal, err error) bool {
	return errors.Is(err, run.ErrUnknownRun) || s.Quarantine != nil && errors.Is(err, session.ErrNotFound)
}

// notBegun retries a request that needs a run that has begun, if the run has an entry among
// the aliases: the node that received its task may have brought it to its log since the
// first attempt. Otherwise it distinguishes a run whose task waits, or was refused or
// cancelled, from one that was not submitted.
func (c *controls) notBegun(ctx context.Context, tenant session.Tenant, s journal.Signal, unknown error, apply func(ctx context.Context, s journal.Signal) error) error {
	have, revision, err := eventlog.ReadAlias(ctx, c.all.Logs, eventlog.RunAliasSubject(tenant, s.Run))
	if err == nil && revision == 0 {
		waits, err := c.taskWaits(ctx, tenant, s.Run)
		switch {
		case err != nil:
			return err
		case waits:
			return fmt.Errorf("run %s: %w: its task waits for a node; it can be cancelled, and other requests work after its start", s.Run, run.ErrState)
		}
		have, _, err = eventlog.ReadAlias(ctx, c.all.Logs, eventlog.RunAliasSubject(tenant, s.Run))
		if err != nil {
			return err
		}
	}
	switch {
	case err != nil:
		return err
	case have.Refused != "":
		return fmt.Errorf("run %s: %w: its task was rejected", s.Run, run.ErrState)
	case have.Session != "":
		s.To = session.Key{Tenant: tenant, ID: have.Session}
		if err := apply(ctx, s); !unborn(s, err) {
			return err
		}
		return fmt.Errorf("run %s: %w: its task waits for its turn; it can be cancelled, and other requests work after its start", s.Run, run.ErrState)
	case have.Cancelled != nil:
		return fmt.Errorf("run %s: %w: it was cancelled before its start", s.Run, run.ErrState)
	}
	return unknown
}

// ofBegun calls do, which needs a run that has begun, and returns the state of a run that
// has not.
func (c *controls) ofBegun(ctx context.Context, tenant session.Tenant, id run.ID, do func() error) error {
	err := do()
	if errors.Is(err, run.ErrUnknownRun) {
		err = c.notBegun(ctx, tenant, journal.Signal{Run: id}, err, func(context.Context, journal.Signal) error { return do() })
	}
	return err
}

// cancelEarly cancels a run that no log holds. It marks the run's alias, which the intake
// reads before and after it claims the task. It marks it for a waiting task and, unless
// only submitted tasks are meant, also for a task that may come: the publisher picks the
// id, and the cancel may overtake the task. cancelEarly distinguishes the two only if that
// affects the result. It marks no alias for a branch.
func (c *controls) cancelEarly(ctx context.Context, tenant session.Tenant, s journal.Signal, submitted bool, apply func(ctx context.Context, s journal.Signal) error) (string, error) {
	subject := eventlog.RunAliasSubject(tenant, s.Run)
	submitted = submitted || branchID.MatchString(string(s.Run))
	for {
		have, revision, err := eventlog.ReadAlias(ctx, c.all.Logs, subject)
		if err == nil && revision == 0 && submitted {
			var waits bool
			if waits, err = c.taskWaits(ctx, tenant, s.Run); err == nil && !waits {
				// An intake that has claimed it since then has made the entry before.
				have, revision, err = eventlog.ReadAlias(ctx, c.all.Logs, subject)
				if err == nil && revision == 0 {
					return "", fmt.Errorf("run %s: %w: no log holds it, and no task of this id waits", s.Run, run.ErrUnknownRun)
				}
			}
		}
		told := dispatch.NoteEarly
		if !submitted && have.Task() == "" {
			told = dispatch.NoteUnborn
		}
		switch {
		case err != nil:
			return "", err
		case have.Refused != "":
			return "", fmt.Errorf("run %s: %w: its task was rejected", s.Run, run.ErrState)
		case have.Cancelled == nil:
			have.Cancelled = s.Cancel
			_, _, stored, err := eventlog.PutAlias(ctx, c.all.Logs, subject, revision, have)
			if err != nil {
				return "", err
			}
			if !stored {
				continue
			}
		}
		// The process that set the cancel may have ended right after that.
		if have.Session == "" {
			return told, c.all.Dispatch.PutCancelled(ctx, tenant, s.Run)
		}
		// The log may hold it by now; if not, the intake sees the note.
		s.To = session.Key{Tenant: tenant, ID: have.Session}
		if err := apply(ctx, s); !errors.Is(err, run.ErrUnknownRun) {
			return "", err
		}
		return told, nil
	}
}

// branchID matches the ids of branches, which commitlog.IDGenerator.Child derives. Their
// tasks come from the log of the run that opened them, and the node that handles such a
// task looks for no alias.
var branchID = regexp.MustCompile(`^[0-9a-f]{20}-[0-9a-z]+-[0-9a-z]+$`)

const (
	// lookAt bounds the tasks that are read to find an undelivered one.
	lookAt = 64
	// aliasSoon is the time within which a node that received a task has made the run's
	// entry.
	aliasSoon = 500 * time.Millisecond
)

// taskWaits reports whether a task of this id, for which there was no entry among the
// aliases, waits in the stream of tasks. A node that receives a task makes the entry first.
// So taskWaits searches the undelivered tasks, and returns run.ErrBusy if they are many,
// and then the tasks in progress. If none waits, the caller reads the entry again: a node
// that received the task meanwhile has made it by then, unless the task waits for room in a
// stream. While such tasks may exist, the error is run.ErrBusy, too.
func (c *controls) taskWaits(ctx context.Context, tenant session.Tenant, id run.ID) (bool, error) {
	consumer, err := c.all.Streams.Reconciler.LookQueue(ctx, streams.TasksQueue())
	if err != nil {
		return false, err
	}
	info := &jetstream.ConsumerInfo{} // no node was ever there
	if consumer != nil {
		info = consumer.CachedInfo()
	}
	from := info.Delivered.Stream + 1
	for range lookAt {
		m, err := c.all.Messages.LeaderNext(ctx, streams.StreamTasks, streams.PrefixTask+string(tenant)+".>", from)
		switch {
		case errors.Is(err, conn.ErrNoMessage) && info.NumAckPending == 0:
			return false, nil
		case errors.Is(err, conn.ErrNoMessage) && c.all.Streams.Capacity.MayRefuse():
			return false, fmt.Errorf("run %s: %w: it is in no log, and its task may wait for room in a stream; try again later, or it was rejected on submission", id, run.ErrBusy)
		case errors.Is(err, conn.ErrNoMessage):
			return c.taskGiven(ctx, tenant, id, info)
		case err != nil:
			return false, err
		case dispatch.IdOf(m.Data) == id:
			return true, nil
		}
		from = m.Seq + 1
	}
	return false, fmt.Errorf("run %s: %w: it is in no log, and its task may be one of many waiting for a node; try again later, or it was rejected on submission", id, run.ErrBusy)
}

// taskGiven is taskWaits for delivered tasks without an acknowledgement: a task may be
// redelivered because its node could not make the entry yet. If they are many, taskGiven
// waits for the entry instead, and returns run.ErrBusy if there is none by then.
func (c *controls) taskGiven(ctx context.Context, tenant session.Tenant, id run.ID, info *jetstream.ConsumerInfo) (bool, error) {
	from := info.AckFloor.Stream + 1
	for range lookAt {
		m, err := c.all.Messages.LeaderNext(ctx, streams.StreamTasks, streams.PrefixTask+string(tenant)+".>", from)
		switch {
		case errors.Is(err, conn.ErrNoMessage) || err == nil && m.Seq > info.Delivered.Stream:
			conn.Pause(ctx, aliasSoon)
			return false, ctx.Err()
		case err != nil:
			return false, err
		case dispatch.IdOf(m.Data) == id:
			return true, nil
		}
		from = m.Seq + 1
	}
	conn.Pause(ctx, aliasSoon)
	if _, revision, err := eventlog.ReadAlias(ctx, c.all.Logs, eventlog.RunAliasSubject(tenant, id)); err != nil || revision != 0 {
		return false, err
	}
	return false, fmt.Errorf("run %s: %w: it is in no log, and its task may be one of many about to be taken; try again later, or it was rejected on submission", id, run.ErrBusy)
}

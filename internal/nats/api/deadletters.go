package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/requests"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// The letters of a tenant and their ends lie in one stream that drops its oldest messages.
// Nodes delete none: a letter that an operator has handled has an end, and is no longer
// listed.

// lettersAhead bounds the letters that wait for a slow watcher; more are lost to it.
const lettersAhead = 256

// WatchDeadLetters calls fn for each task of any tenant that is refused from now on, until
// ctx ends. It skips a letter that is soon stored again. It needs the rights of a node.
func (c *Conn) WatchDeadLetters(ctx context.Context, fn func(t session.Tenant, workflow string, l messages.DeadLetter)) error {
	sub, err := c.Conn.NC.SubscribeSync(streams.PrefixDLQ + ">")
	if err == nil {
		err = sub.SetPendingLimits(lettersAhead, -1)
	}
	if err != nil {
		return fmt.Errorf("nats/api: watch %s>: %w", streams.PrefixDLQ, err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only when the connection has ended
	for last := ""; ; {
		m, err := sub.NextMsgWithContext(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, nats.ErrSlowConsumer):
			continue
		case err != nil:
			return fmt.Errorf("nats/api: watch %s>: %w", streams.PrefixDLQ, err)
		}
		t, workflow, ok := messages.ParseDeadLetterSubject(m.Subject)
		if !ok || m.Subject == last {
			continue // the end of one, or again
		}
		last = m.Subject
		if l, err := messages.DecodeDeadLetter(m.Data); err == nil {
			fn(t, workflow, l)
		}
	}
}

// letters answers a query for a page of dead letters.
func (a answerer) letters(ctx context.Context, t session.Tenant, q wire.Query) (any, error) {
	end, err := a.c.Messages.LastSequence(ctx, streams.StreamDLQ)
	if err != nil {
		return nil, err
	}
	ended, err := a.c.endedLetters(ctx, t, end)
	if err != nil {
		return nil, err
	}
	out := wire.DeadLetters{Letters: []messages.StoredLetter{}}
	room := pageRoom
	for m, err := range a.c.Messages.UpTo(ctx, streams.StreamDLQ, streams.PrefixDLQ+string(t)+".>", q.After, end) {
		if err != nil {
			return nil, err
		}
		_, _, ok := messages.ParseDeadLetterSubject(m.Subject)
		l, err := messages.DecodeDeadLetter(m.Data)
		if !ok || err != nil || ended[m.Seq] {
			continue
		}
		room -= len(m.Data)
		if n := len(out.Letters); n > 0 && (room < 0 || n >= limitOf(q)) {
			out.Next = out.Letters[n-1].At
			break
		}
		out.Letters = append(out.Letters, messages.StoredLetter{At: m.Seq, Letter: l})
	}
	return out, nil
}

// endedLetters returns the letters of a tenant that have an end, as of a sequence of DLQ.
func (c *Conn) endedLetters(ctx context.Context, t session.Tenant, at uint64) (map[uint64]bool, error) {
	ended := map[uint64]bool{}
	for m, err := range c.Messages.UpTo(ctx, streams.StreamDLQ, streams.PrefixDLQ+string(t)+".*.*", 0, at) {
		if err != nil {
			return nil, err
		}
		if e, err := wire.DecodeLetterEnd(m.Data); err == nil && e.End != messages.LetterRetrying {
			ended[e.At] = true
		}
	}
	return ended, nil
}

// controlDead deals with a dead letter; the note of a retry is the run.
func (c *controls) controlDead(ctx context.Context, of wire.Controlled, body messages.Control) (note string, err error) {
	t, id, verb := of.Tenant, of.ID, of.Verb
	at, err := strconv.ParseUint(id, 10, 64)
	if err != nil || at == 0 {
		return "", fmt.Errorf("dead letter %q: %w: name it by its sequence", id, run.ErrMalformed)
	}
	m, err := c.all.Messages.LeaderAt(ctx, streams.StreamDLQ, at)
	tenant, workflow, ok := messages.ParseDeadLetterSubject(m.Subject)
	switch {
	case errors.Is(err, conn.ErrNoMessage), err == nil && (!ok || tenant != t):
		return "", requests.NoLetter(at)
	case err != nil:
		return "", err
	}
	subject := messages.LetterEndSubject(t, workflow, at)
	end := wire.LetterEnd{Schema: wire.LetterEndSchema, At: at, By: of.User, Says: body.By, Reason: body.Reason, TimeMS: time.Now().UnixMilli()}
	switch verb {
	case messages.VerbLetterRetry:
		end.End = messages.LetterRetrying
		id, err := c.retry(ctx, t, workflow, subject, m, end)
		return string(id), err
	case messages.VerbLetterDrop:
		end.End = messages.LetterDropped
		now, _, err := c.endLetter(ctx, subject, 0, end)
		if err == nil && now != end {
			err = endedBefore(now)
		}
		return "", err
	}
	return "", fmt.Errorf("dead letter %d: verb %q: %w: %s or %s", at, verb, run.ErrMalformed, messages.VerbRetry, messages.VerbDrop)
}

func endedBefore(e wire.LetterEnd) error {
	if e.End == messages.LetterRetrying {
		return fmt.Errorf("dead letter %d: %w: a retry has started, and its task may be submitted; retry it too, which submits it once, and cancel run %s", e.At, run.ErrState, e.Run)
	}
	return fmt.Errorf("dead letter %d was %s before: %w", e.At, e.End, run.ErrState)
}

// endLetter stores the end of a letter after the end with a revision, zero for none, and
// returns the end that is stored then.
func (c *controls) endLetter(ctx context.Context, subject string, last uint64, end wire.LetterEnd) (now wire.LetterEnd, revision uint64, err error) {
	data, err := messages.Encode(end)
	if err != nil {
		return end, 0, err
	}
	m, _, err := c.all.Messages.PutAfter(ctx, streams.StreamDLQ, subject, last, data)
	if err == nil {
		now, err = wire.DecodeLetterEnd(m.Data)
	}
	if err != nil {
		return end, 0, fmt.Errorf("nats/api: store %s: %w", subject, err)
	}
	return now, m.Seq, nil
}

// retry submits a letter's task again. It first records the retry: no task of a dropped
// letter runs, and all who retry it submit one run.
func (c *controls) retry(ctx context.Context, t session.Tenant, workflow, subject string, m conn.Message, begun wire.LetterEnd) (run.ID, error) {
	l, err := messages.DecodeDeadLetter(m.Data)
	if err != nil {
		return "", err
	}
	have, err := c.all.Messages.LeaderLast(ctx, streams.StreamDLQ, subject)
	revision := have.Seq
	switch {
	case err == nil:
		begun, err = wire.DecodeLetterEnd(have.Data)
	case errors.Is(err, conn.ErrNoMessage):
		if begun.Run, err = c.retryID(ctx, t, m.Seq, &l); err != nil {
			return "", err
		}
		if _, _, err = retried(t, workflow, m.Seq, &l, begun); err != nil {
			return "", err
		}
		begun, revision, err = c.endLetter(ctx, subject, 0, begun)
	}
	switch {
	case err != nil:
		return "", err
	case begun.End == messages.LetterRetried:
		return begun.Run, nil
	case begun.End != messages.LetterRetrying:
		return "", endedBefore(begun)
	}
	to, body, err := retried(t, workflow, m.Seq, &l, begun)
	if err != nil {
		return "", err
	}
	if err = c.all.Messages.PublishAtLeastOnce(ctx, &nats.Msg{Subject: to, Header: nats.Header{messages.HeaderSays: {begun.Says}}, Data: body}); err != nil {
		if errors.Is(err, conn.ErrFull) {
			err = fmt.Errorf("%w: %w", run.ErrBusy, err)
		}
		return "", err
	}
	begun.End = messages.LetterRetried
	_, _, err = c.endLetter(ctx, subject, revision, begun) // or another one did
	return begun.Run, err
}

// retried returns the task of a letter for a new submission: from the user who first
// submitted it, by way of the user who retries it.
func retried(t session.Tenant, workflow string, at uint64, l *messages.DeadLetter, by wire.LetterEnd) (subject string, body []byte, err error) {
	body, err = l.Retry(by.Run)
	tenant, from, of, ok := messages.ParseTaskSubject(l.Subject)
	if err == nil && (!ok || tenant != t || of != workflow) {
		err = fmt.Errorf("dead letter %d: it came on %q, which is no subject of tasks: %w; submit it corrected", at, l.Subject, run.ErrState)
	}
	from.Via = by.By
	return messages.TaskSubject(t, from.Token(), workflow), body, err
}

// retryID returns the id for the next try of a letter's task: its own id, unless another
// task has it or a result was published under it, which is permanent. Otherwise it is an id
// like a rerun's.
func (c *controls) retryID(ctx context.Context, t session.Tenant, at uint64, l *messages.DeadLetter) (run.ID, error) {
	if l.Run != "" {
		_, revision, err := eventlog.ReadAlias(ctx, c.all.Logs, eventlog.RunAliasSubject(t, l.Run))
		if err != nil || revision == 0 {
			return l.Run, err
		}
	}
	return c.nextRerun(ctx, t, cmp.Or(l.Run, "letter"), "letter "+strconv.FormatUint(at, 10), false)
}

// maxID is the longest id.
const maxID = 64

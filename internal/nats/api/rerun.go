package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// maxReruns bounds how often one task is run again.
const maxReruns = 1000

// rerunID matches the end of a rerun's id.
var rerunID = regexp.MustCompile(`-r[0-9]+$`)

// rerun submits the task of a run again and returns the new run's id, the same one for each
// repetition of the request. The task is the one that the run's home log recorded, without
// its times; it is from the user who submitted it, by way of user. That of a run which
// continued another one continues it at the same step again.
func (c *controls) rerun(ctx context.Context, t session.Tenant, id run.ID, user string, request messages.Control) (run.ID, error) {
	home, err := c.all.Logs.RunSession(ctx, t, id)
	if err != nil {
		return "", err
	}
	values := journal.NewValues(c.all.Logs.Log())
	h, err := values.Recording(ctx, home, id)
	if err != nil {
		return "", err
	}
	if b := h.Record.Task.Branch; b != nil {
		return "", fmt.Errorf("run %s is the branch %s of run %s: %w; rerun that one", id, b.Name, b.Ancestors[0].Run, run.ErrState)
	}
	if of, cleanup := run.CleanedBy(id); cleanup {
		return "", fmt.Errorf("run %s executes the compensations of run %s, once: %w; rerun that one", id, of, run.ErrState)
	}
	done, err := values.DoneBy(ctx, h)
	switch {
	case err != nil:
		return "", err
	case len(done) > 0 && !request.Repeat:
		return "", fmt.Errorf("run %s has made %s: %w; a failed run can be resumed, which keeps them; to make them again, rerun it with repeat", id, journal.ListCalls(done), run.ErrState)
	}
	task := translate.TaskOf(h.Record.Task)
	task.Deadline, task.NotBefore, task.Session = messages.Task{}.Deadline, messages.Task{}.NotBefore, ""
	// A session that the run opened itself is opened again; a session that the run
	// continued is forked at its base.
	if base := h.Base.Ref(); h.Session.Opening().Run != string(id) && base.Version > 0 {
		task.ForkOf = base.String()
	}
	return c.again(ctx, t, h.Record, task, user, request, false)
}

// resume submits the task of a run that has ended without success again, as a run that
// continues it, and returns the new run's id, the same one for each repetition of the
// request.
func (c *controls) resume(ctx context.Context, t session.Tenant, id run.ID, user string, request messages.Control) (run.ID, error) {
	home, err := c.all.Logs.RunSession(ctx, t, id)
	if err != nil {
		return "", err
	}
	r, of, err := journal.NewValues(c.all.Logs.Log()).ResumptionAt(ctx, home, id, request.Step)
	if err != nil {
		return "", err
	}
	task := translate.TaskOf(of.Task)
	task.Deadline, task.NotBefore, task.Session, task.Workspace, task.ForkOf = messages.Task{}.Deadline, messages.Task{}.NotBefore, "", "", ""
	task.Resumes, task.Model = r, cmp.Or(request.Model, task.Model)
	if request.Budget != nil {
		task.Budget = *request.Budget
	}
	return c.again(ctx, t, of, task, user, request, true)
}

// again submits a task made from that of a run under the next id of a rerun. continues: the
// new run continues the other.
func (c *controls) again(ctx context.Context, t session.Tenant, of *journal.Record, task messages.Task, user string, request messages.Control, continues bool) (run.ID, error) {
	var err error
	if task.ID, err = c.nextRerun(ctx, t, of.ID, request.ID, continues); err != nil {
		return "", err
	}
	if err := c.all.Dispatch.Admit(ctx, session.Key{Tenant: t, ID: c.all.Logs.HomeOf(t, task.ID)}); err != nil {
		return "", fmt.Errorf("run %s again as %s: %w", of.ID, task.ID, err)
	}
	body, err := task.Encode()
	if err != nil {
		return "", err
	}
	from := messages.Submitter{By: cmp.Or(of.By, messages.UserAnonymous), Via: user}
	err = c.all.Messages.PublishAtLeastOnce(ctx, &nats.Msg{Subject: messages.TaskSubject(t, from.Token(), of.Task.Workflow), Header: nats.Header{messages.HeaderSays: {request.By}}, Data: body})
	if errors.Is(err, conn.ErrFull) {
		err = fmt.Errorf("%w: %w", run.ErrBusy, err)
	}
	return task.ID, err
}

// nextRerun returns the id of an earlier rerun by the same request, or else the first
// unused one. One run at most continues another, so its id is the same for each request, and
// is returned as long as there is no such run.
func (c *controls) nextRerun(ctx context.Context, t session.Tenant, id run.ID, request string, continues bool) (run.ID, error) {
	prefix := "resume " + string(id) + " "
	if continues {
		request = prefix + request
	}
	base := rerunID.ReplaceAllString(string(id), "")
	for n := 1; n <= maxReruns; n++ {
		number := "-r" + strconv.Itoa(n)
		next := base[:min(len(base), maxID-len(number))] + number
		subject := streams.KeySubject(streams.BucketAlias, translate.RerunAliasKey(t, run.ID(next)))
		have, taken, err := eventlog.ReadAlias(ctx, c.all.Logs, subject)
		if err == nil && taken == 0 {
			// A run that was submitted under such an id is no rerun.
			if _, taken, err = eventlog.ReadAlias(ctx, c.all.Logs, eventlog.RunAliasSubject(t, run.ID(next))); taken == 0 && err == nil {
				have, _, _, err = eventlog.CreateAlias(ctx, c.all.Logs, subject, translate.Alias{Request: request})
			}
		}
		if err != nil {
			return "", err
		}
		if have.Request == request {
			return run.ID(next), nil
		}
		if continues && strings.HasPrefix(have.Request, prefix) {
			_, err := c.all.Logs.RunSession(ctx, t, run.ID(next))
			if err == nil {
				err = fmt.Errorf("run %s continues as run %s: %w; resume that one", id, next, run.ErrState)
			} else if errors.Is(err, run.ErrUnknownRun) {
				err = nil // its task was never stored
			}
			return run.ID(next), err
		}
	}
	return "", fmt.Errorf("run %s was rerun %d times: %w", id, maxReruns, run.ErrBusy)
}

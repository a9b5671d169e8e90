package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Intake configures how a node ingests tasks. All fields are required except Signal and
// Check.
type Intake struct {
	// Offers returns the revision under which the node offers a workflow.
	Offers func(workflow string) (revision string, ok bool)
	// Limit returns the limit of a workflow that the node offers; nil is for a node without
	// limits. The registry may not have the node's offer yet.
	Limit func(workflow string) *run.Limit
	// Accept claims a task of a workflow that this node offers and returns when a log holds
	// it, or run.ErrBusy if no slot is free. An error that messages.Refusal reports refuses
	// the task for good; after any other error the task is redelivered, here or to another
	// node.
	Accept func(ctx context.Context, t journal.Task) (journal.Answer, error)
	// Enqueue returns when a log holds the task without a claim: the relay dispatches it. A
	// task with a cancel has ended then, unless the log holds an obstacle.
	Enqueue func(ctx context.Context, t journal.Task, cancel *journal.CancelRequested) error
	// Signal applies a fact to a run. It is needed for a cancel that arrived before the log
	// held the task.
	Signal func(ctx context.Context, s journal.Signal) error
	// Check, if set, refuses tasks that this node would run and whose terms it cannot meet.
	Check func(t journal.Task) error
}

// CodeUnknownWorkflow is the code of a task whose workflow no node offers.
const CodeUnknownWorkflow run.Code = "unknown_workflow"

// tasksAtOnce bounds the tasks that a node ingests concurrently. They need no slot: a run
// that cannot begin at once waits in its log.
const tasksAtOnce = 128

// PullTasks ingests submitted tasks until ctx ends. It acknowledges a task when a log holds
// it, or when it is refused. A refused task is stored in DLQ with the reason, reported on
// the run's event subject, and its run gets a failed result. A task that reuses the id of
// another one does not change the other one's result.
func (c *Dispatch) PullTasks(ctx context.Context, in *Intake) error {
	i := intake{c: c, Intake: *in, offers: c.Registry.newCatalog(), credits: newCredits(c)}
	p := &puller{c: c, PullQueue: streams.TasksQueue(), most: tasksAtOnce, handle: i.handle}
	return p.run(ctx)
}

type intake struct {
	c       *Dispatch
	offers  *catalog
	credits *credits
	Intake
}

// incomingTask is a task being ingested.
type incomingTask struct {
	msg      jsMsg
	tenant   session.Tenant
	workflow string
	id       run.ID       // "" if it cannot be read
	digest   string       // of the submission
	task     journal.Task // once it is read
	placed   bool         // only the log of the session that its alias names, or its body, can still refuse it
}

// again reports whether the task was delivered before.
func (l *incomingTask) again() bool {
	meta, err := l.msg.Metadata()
	return err != nil || meta.NumDelivered > 1
}

func (i *intake) handle(ctx context.Context, m jsMsg) disposition {
	l := incomingTask{msg: m}
	err := i.take(ctx, &l)
	switch {
	case err == nil:
		return ack
	case errors.Is(err, run.ErrShutdown):
		return nak
	case errors.Is(err, errNoCredit):
		return nakBacklogged
	case errors.Is(err, errCreditSoon), errors.Is(err, errUnderWay):
		return nakMoving
	case errors.Is(err, streams.ErrNoRoom):
		// The usage of the streams is logged once, and not with each task that waits.
		i.c.conn.Logger.Debug("a task waits for room", "subject", m.Subject(), "run", string(l.id), "err", err)
		i.publishHeld(&l, err)
		return nakDelayed
	case !messages.Refusal(err) && !errors.Is(err, run.ErrDeadline) && run.CodeOf(err) != CodeUnknownWorkflow:
		i.c.conn.Logger.Info("a task was not taken and comes again", "subject", m.Subject(), "run", string(l.id), "err", err)
		return nakDelayed
	}
	if err := i.refuse(ctx, &l, err); err != nil {
		i.c.conn.Logger.Error("a rejected task could not be stored as a dead letter and is redelivered", "subject", m.Subject(), "run", string(l.id), "err", err)
		return nakDelayed
	}
	return ack
}

// errNoCredit is returned for a task if enough of its kind wait in logs, and errCreditSoon
// if some of them begin.
var (
	errNoCredit   = errors.New("nats/dispatch: enough runs of this tenant and workflow wait")
	errCreditSoon = errors.New("nats/dispatch: enough runs of this tenant and workflow wait, and some start")
)

// maxClaim bounds the claim of a task's sender that is stored, in bytes.
const maxClaim = 128

// take brings a task into a log.
func (i *intake) take(ctx context.Context, l *incomingTask) error {
	body := l.msg.Data()
	l.digest = eventlog.DigestOf("body", string(body))
	in, err := messages.DecodeTask(body)
	l.id = in.ID
	tenant, from, workflow, ok := messages.ParseTaskSubject(l.msg.Subject())
	if !ok {
		// The sender can be notified with the tenant alone.
		head, _, _ := strings.Cut(strings.TrimPrefix(l.msg.Subject(), streams.PrefixTask), ".")
		if session.ValidID("tenant", head) == nil {
			l.tenant = session.Tenant(head)
		}
		return fmt.Errorf("task on subject %q: %w: publish on rath.task.<tenant>.<user>.<workflow>", l.msg.Subject(), run.ErrMalformed)
	}
	l.tenant, l.workflow = tenant, workflow
	if err != nil {
		if errors.Is(err, session.ErrTooLarge) && l.id == "" {
			l.id = IdOf(body)
		}
		return err
	}
	t, err := translate.Task(&in, tenant, workflow)
	if err != nil {
		return err
	}
	if from.Via == "" { // no permission of a client matches a subject with another submitter
		if err := in.NotOfClient(); err != nil {
			return err
		}
	}
	l.task = t
	t.By, t.Via, t.Says = from.By, from.Via, excerpt.Start(l.msg.Headers().Get(messages.HeaderSays), maxClaim)
	if l.digest, err = in.Digest(tenant, workflow); err != nil {
		return err
	}
	if i.Check != nil {
		if err := i.Check(t); err != nil {
			return err
		}
	}
	if err := i.findPredecessors(ctx, l, t.After); err != nil {
		return err
	}
	accept, err := i.claimOrQueue(ctx, &t)
	if err != nil {
		return err
	}
	return i.place(ctx, l, t, in.Session, accept)
}

// IdOf reads the run's id of a task, also of a task that is too large.
func IdOf(body []byte) run.ID {
	var only struct {
		ID run.ID `json:"id"`
	}
	if json.Unmarshal(body, &only) != nil || session.ValidID("run", string(only.ID)) != nil {
		return ""
	}
	return only.ID
}

// claimOrQueue returns the function by which a log gets a task: a claim here, if this node
// offers its workflow, no node of the tenant is known to, and no run waits for the free
// slot; an append without a claim otherwise. It fails for a task whose workflow no node
// offers.
func (i *intake) claimOrQueue(ctx context.Context, t *journal.Task) (accept func(context.Context, journal.Task) error, err error) {
	revision, ok := i.Offers(t.Workflow)
	here := ok && (t.Revision == "" || t.Revision == revision)
	found, all, err := i.offers.find(ctx, t.Session.Tenant, t.Workflow, t.Revision)
	if !here && len(found) == 0 && err == nil {
		// Replicas may lag behind, so the registry's leader is asked.
		var now []messages.Workflow
		now, err = i.c.Registry.offering(ctx, t.Workflow)
		found = OffersOf(now, t.Session.Tenant, t.Workflow, t.Revision)
	}
	var limit *run.Limit
	bound := false
	switch {
	case len(found) > 0:
		limit = found[0].Limit
		_, bound = messages.PoolOf(found[0].Pool)
	case here && i.Limit != nil:
		limit = i.Limit(t.Workflow)
	}
	if here || len(found) > 0 {
		quota, err := i.c.Quotas.Limit(ctx, t.Session.Tenant)
		if err != nil {
			return nil, err
		}
		var malformed error
		if t.Limit, malformed = journal.NewLimit(limit, quota, i.c.logs.Minter(), t); malformed != nil {
			return nil, malformed
		}
	}
	switch {
	case here && err == nil && !bound:
		return i.begin, nil
	case here: // nodes of the tenant may offer it: the relay finds out
		return i.wait, nil
	case err != nil:
		return nil, err
	case len(found) > 0:
		return i.wait, nil
	case ok:
		return nil, fmt.Errorf("task %s: field revision: %w: no node offers revision %q of %s, this one offers %q; leave it out to take that",
			t.ID, run.ErrNotSupported, t.Revision, t.Workflow, revision)
	}
	var names []string
	for _, w := range all {
		names = append(names, w.Name)
	}
	return nil, &unknownWorkflow{t.Workflow, slices.Compact(names)}
}

// begin claims a task here, if a slot is free and no relay waits for it.
func (i *intake) begin(ctx context.Context, t journal.Task) error {
	if g := i.c.host.Load(); g != nil && g.quiet() && t.Limit == nil && len(t.After) == 0 {
		if _, err := i.Accept(ctx, t); !errors.Is(err, run.ErrBusy) {
			return err
		}
	}
	return i.wait(ctx, t)
}

// wait gets a task into a log for the node that the relay chooses, unless enough
// of its kind wait.
func (i *intake) wait(ctx context.Context, t journal.Task) error {
	ok, moving, err := i.credits.take(ctx, t.Session, t.Workflow, creditLog(t.Limit, t.After))
	switch {
	case err != nil:
		return err
	case ok:
		return i.Enqueue(ctx, t, nil)
	case moving:
		return errCreditSoon
	}
	return errNoCredit
}

// unknownWorkflow is the error of a task whose workflow no node offers.
type unknownWorkflow struct {
	name   string
	offers []string
}

func (e *unknownWorkflow) Error() string {
	have := "no workflow is on offer"
	if len(e.offers) > 0 {
		have = "on offer: " + strings.Join(e.offers, ", ")
	}
	return fmt.Sprintf("unknown workflow %q; %s", e.name, have)
}

// ErrorCode returns the code, see run.CodeOf.
func (e *unknownWorkflow) ErrorCode() string { return string(CodeUnknownWorkflow) }

// place finds the session of a task, notes the run's id, and has it accepted.
func (i *intake) place(ctx context.Context, l *incomingTask, t journal.Task, name string, accept func(context.Context, journal.Task) error) error {
	subject := eventlog.RunAliasSubject(l.tenant, t.ID)
	have, fresh, err := i.note(ctx, l, t, name, subject)
	if err != nil {
		return err
	}
	l.placed = fresh
	switch {
	case have.Task() == "" && have.Cancelled != nil:
		ended, err := i.hasEnded(ctx, l)
		if ended || err != nil {
			return err
		}
		if err := i.tellStarter(ctx, l, journal.RunEnd{Run: l.id, State: run.Cancelled, Code: run.CodeCancelled, Error: have.Cancelled.Reason}); err != nil {
			return err
		}
		return i.c.PutCancelled(ctx, l.tenant, l.id) // before it was submitted
	case have.Task() != l.digest:
		return fmt.Errorf("task %s: %w; choose another id, or send the same body", t.ID, run.ErrKeyReused)
	case have.Refused != "":
		return i.refused(ctx, l, have.Refused)
	}
	t.Session.ID = have.Session
	if !fresh && have.Cancelled == nil {
		if err := i.admitAgain(ctx, t); err != nil {
			return err
		}
	}
	l.placed = true
	t.Unborn = fresh && name == ""
	if err := i.fork(ctx, l, &t, fresh); err != nil {
		return err
	}
	if have.Cancelled != nil {
		// It shall end, not begin.
		accept = func(ctx context.Context, t journal.Task) error { return i.Enqueue(ctx, t, have.Cancelled) }
	}
	err = accept(ctx, t)
	if errors.Is(err, session.ErrArchived) && !fresh {
		if ended, endedErr := i.endedIn(ctx, l); ended || endedErr != nil {
			return endedErr // its log is archived, and it ended long ago
		}
	}
	if err != nil {
		return err
	}
	if !fresh {
		i.republishResult(ctx, t.Session.Tenant, t.ID)
	}
	return i.cancelledMeanwhile(ctx, subject, t)
}

// note records the session of a task under its run's id, unless it is already recorded, and
// returns the record. For the first delivery of a task that names no session, the write
// itself finds an earlier record.
func (i *intake) note(ctx context.Context, l *incomingTask, t journal.Task, name, subject string) (have translate.Alias, fresh bool, err error) {
	a := translate.Alias{Digest: l.digest, Session: i.c.logs.HomeOf(l.tenant, t.ID)}
	var refused error
	if name == "" {
		refused = i.admit(ctx, t, a.Session)
	}
	if name != "" || refused != nil || l.again() {
		have, revision, err := eventlog.ReadAlias(ctx, i.c.logs, subject)
		if err != nil || revision != 0 {
			return have, false, err
		}
	}
	if name != "" {
		if a.Session, err = i.c.logs.ResolveSession(ctx, l.tenant, name, true); err != nil {
			return have, false, err
		}
		refused = i.admit(ctx, t, a.Session)
	}
	if refused != nil {
		return have, false, refused
	}
	have, _, fresh, err = eventlog.CreateAlias(ctx, i.c.logs, subject, a)
	return have, fresh, err
}

// republishResult publishes the result of a run that has ended, for the client that
// submitted it again. The stream RESULT already holds the result and does not store it
// again.
func (i *intake) republishResult(ctx context.Context, tenant session.Tenant, id run.ID) {
	subject := messages.RunSubject(tenant, id, messages.OnResult)
	if m, err := i.c.messages.Last(ctx, streams.StreamResult, subject); err == nil {
		_ = i.c.conn.NC.Publish(subject, m.Data) // a client that misses it asks
	}
}

// hasEnded reports whether a run that no log held has its result, and then republishes it.
func (i *intake) hasEnded(ctx context.Context, l *incomingTask) (bool, error) {
	ended, err := i.c.projections.HasResult(ctx, l.tenant, l.id)
	if ended && err == nil {
		i.republishResult(ctx, l.tenant, l.id)
	}
	return ended, err
}

// endedIn reports whether a run whose log is archived ended there, and publishes its result
// or, if a prune removed that, an event with the code pruned. A prune marks the alias before
// it removes the result, so the alias is read last.
func (i *intake) endedIn(ctx context.Context, l *incomingTask) (bool, error) {
	ended, err := i.hasEnded(ctx, l)
	if ended || err != nil {
		return ended, err
	}
	have, _, err := eventlog.ReadAlias(ctx, i.c.logs, eventlog.RunAliasSubject(l.tenant, l.id))
	if err != nil || have.Ended != l.digest {
		return false, err
	}
	if _, err = i.c.projections.Result(ctx, l.tenant, l.id); !errors.Is(err, run.ErrPruned) {
		return err == nil, err
	}
	ev := translate.Refused(l.tenant, l.id, l.workflow, *wire.ErrorOf(err))
	ev.Time = time.Now().UnixMilli()
	data, err := messages.Encode(ev)
	if err != nil {
		return true, err
	}
	return true, i.c.conn.Tell(ctx, messages.RunSubject(l.tenant, l.id, messages.OnEvent), data)
}

// fork resolves the name of the session to fork. An existing session cannot become a fork,
// of that session or of the one of a run that the task resumes, unless another delivery of
// the task made it.
func (i *intake) fork(ctx context.Context, l *incomingTask, t *journal.Task, fresh bool) error {
	if t.ForkOf != nil {
		id, err := i.c.logs.ResolveSession(ctx, t.Session.Tenant, string(t.ForkOf.ID), false)
		if err != nil {
			return fmt.Errorf("task %s: field fork_of: %w", t.ID, err)
		}
		ref := *t.ForkOf
		ref.ID = id
		t.ForkOf = &ref
	}
	if !fresh || t.ForkOf == nil && t.Resumes == nil {
		return nil // it exists perhaps because an earlier delivery made it
	}
	_, err := i.c.logs.Log().Last(ctx, t.Session)
	if errors.Is(err, session.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	// The task's entry did not exist when this delivery looked. A node that was frozen
	// since then finds the work of another delivery.
	if has, err := i.has(ctx, l, t.Session.ID); has || err != nil {
		return err
	}
	return fmt.Errorf("task %s: %w: session %s of the fork exists already; leave session out to get a new one", t.ID, run.ErrMalformed, t.Session.ID)
}

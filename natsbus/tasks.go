package natsbus

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Intake says what a node does with the tasks that it pulls. All fields are
// required but Slots, Enqueue and Signal.
type Intake struct {
	// Slots returns how many more tasks the node could take now; nil is one at
	// a time.
	Slots func() int
	// Offers returns the revision under which the node offers a workflow.
	Offers func(workflow string) (revision string, ok bool)
	// Accept returns when a log holds the task: claimed, queued or known
	// already. An error that messages.Refusal reports refuses the task for
	// good; with any other one it comes again, here or on another node.
	Accept func(ctx context.Context, t run.Task) error
	// Enqueue returns when a log holds the task without a claim: the relay
	// offers it to the pool whose nodes run it. One that comes with a cancel has
	// ended then, if nothing is in its way. Nil leaves it to those nodes.
	Enqueue func(ctx context.Context, t run.Task, cancel *run.CancelRequested) error
	// Signal applies a fact to a run. It is needed for a cancel that came
	// while the task was on its way.
	Signal func(ctx context.Context, s run.Signal) error
}

// CodeUnknownWorkflow is the code of a task whose workflow nobody offers.
const CodeUnknownWorkflow run.Code = "unknown_workflow"

// PullTasks takes submitted tasks until ctx ends, at most as many at once as
// there are slots. A task is acknowledged when a log holds it, or when it is
// refused: then it is kept in DLQ with the reason, told on the run's event
// subject, and the run has a failed result. But a task that reuses the id of
// another one changes nothing about that one's result.
func (c *Conn) PullTasks(ctx context.Context, in *Intake) error {
	i := intake{c: c, Intake: *in, offers: c.newCatalog()}
	if i.Slots == nil {
		i.Slots = func() int { return 1 }
	}
	p := &puller{c: c, pullQueue: tasksQueue(), slots: i.Slots, lobby: c.lobby, rank: rankTasks, handle: i.handle, light: i.light}
	return p.run(ctx)
}

type intake struct {
	c      *Conn
	offers *catalog
	Intake
}

// light reports whether a task takes no slot here: other nodes run it.
func (i *intake) light(m jsMsg) bool {
	_, workflow, ok := messages.ParseTaskSubject(m.Subject())
	if ok {
		_, ok = i.Offers(workflow)
	}
	return !ok
}

// letter is a task on its way in.
type letter struct {
	msg      jsMsg
	tenant   session.Tenant
	workflow string
	id       run.ID // "" if it cannot be read
	digest   string // of what was submitted
	placed   bool   // what refuses it is the log of the session that is noted for it, or its body
}

func (i *intake) handle(ctx context.Context, m jsMsg) fate {
	l := letter{msg: m}
	err := i.take(ctx, &l)
	switch {
	case err == nil:
		return done
	case errors.Is(err, errElsewhere), errors.Is(err, run.ErrShutdown):
		return other
	case errors.Is(err, errNoRoom):
		// What the streams hold is told once, and not with each task that waits.
		i.c.o.Logger.Debug("a task waits for room", "subject", m.Subject(), "run", string(l.id), "err", err)
		i.tellHeld(&l, err)
		return later
	case !messages.Refusal(err) && !errors.Is(err, run.ErrDeadline) && run.CodeOf(err) != CodeUnknownWorkflow:
		i.c.o.Logger.Info("a task was not taken and comes again", "subject", m.Subject(), "run", string(l.id), "err", err)
		return later
	}
	if err := i.refuse(ctx, &l, err); err != nil {
		i.c.o.Logger.Error("a refused task could not be put away and comes again", "subject", m.Subject(), "run", string(l.id), "err", err)
		return later
	}
	return done
}

// errElsewhere is returned for a task that other nodes take.
var errElsewhere = errors.New("natsbus: offered elsewhere")

// take gets a task into a log.
func (i *intake) take(ctx context.Context, l *letter) error {
	body := l.msg.Data()
	l.digest = digestOf("body", string(body))
	in, err := messages.DecodeTask(body)
	l.id = in.ID
	tenant, workflow, ok := messages.ParseTaskSubject(l.msg.Subject())
	if !ok {
		// A tenant alone is enough to tell the sender.
		head, _, _ := strings.Cut(strings.TrimPrefix(l.msg.Subject(), prefixTask), ".")
		if session.ValidID("tenant", head) == nil {
			l.tenant = session.Tenant(head)
		}
		return fmt.Errorf("task on subject %q: %w: publish on rath.task.<tenant>.<workflow>", l.msg.Subject(), run.ErrMalformed)
	}
	l.tenant, l.workflow = tenant, workflow
	if err != nil {
		if errors.Is(err, session.ErrTooLarge) && l.id == "" {
			l.id = idOf(body)
		}
		return err
	}
	t, err := in.Run(tenant, workflow)
	if err != nil {
		return err
	}
	l.digest = digestOf(t.Digest(), in.Session)
	accept, err := i.who(ctx, t)
	if err != nil {
		return err
	}
	return i.place(ctx, l, t, in.Session, accept)
}

// idOf reads the run's id of a task, also of one that is too large to be taken.
func idOf(body []byte) run.ID {
	var only struct {
		ID run.ID `json:"id"`
	}
	if json.Unmarshal(body, &only) != nil || session.ValidID("run", string(only.ID)) != nil {
		return ""
	}
	return only.ID
}

// digestOf tells two submissions under one id apart.
func digestOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// who says how a log gets a task: by a claim here, or for the nodes that offer
// its workflow. It fails for a task that nobody runs.
func (i *intake) who(ctx context.Context, t run.Task) (accept func(context.Context, run.Task) error, err error) {
	revision, ok := i.Offers(t.Workflow)
	if ok && (t.Revision == "" || t.Revision == revision) {
		return i.Accept, nil
	}
	found, all, err := i.offers.find(ctx, t.Workflow, t.Revision)
	if found == nil && err == nil {
		// What replicas say may lag behind, and nobody asks them again.
		var now []messages.Workflow
		now, err = i.c.offering(ctx, t.Workflow)
		found = offerOf(now, t.Workflow, t.Revision)
	}
	switch {
	case err != nil:
		return nil, err
	case found != nil && i.Enqueue == nil:
		return nil, errElsewhere
	case found != nil:
		return func(ctx context.Context, t run.Task) error { return i.forPool(ctx, t, found) }, nil
	case ok:
		return nil, fmt.Errorf("task %s: field revision: %w: nobody offers revision %q of %s, this node offers %q; leave it out to take that",
			t.ID, run.ErrNotSupported, t.Revision, t.Workflow, revision)
	}
	var names []string
	for _, w := range all {
		names = append(names, w.Name)
	}
	return nil, &unknownWorkflow{t.Workflow, slices.Compact(names)}
}

// maxForPool bounds the runs of a tenant that wait for a pool in logs: more
// wait in TASKS, which is bounded.
const maxForPool = 64

// forPool gets a task into a log for the nodes of another pool, unless enough
// runs of its tenant wait for them.
func (i *intake) forPool(ctx context.Context, t run.Task, w *messages.Workflow) error {
	subject := prefixWork + w.Pool + "." + classOf(w.Class) + "." + string(t.Session.Tenant) + ".>"
	waiting, err := i.c.subjects(ctx, StreamWork, subject)
	if err != nil {
		return err
	}
	if n := len(waiting); n >= maxForPool {
		return fmt.Errorf("%w: %d runs of tenant %s wait for pool %s", run.ErrBusy, n, t.Session.Tenant, w.Pool)
	}
	return i.Enqueue(ctx, t, nil)
}

// unknownWorkflow is the error of a task whose workflow nobody offers.
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

// ErrorCode implements run.Coded.
func (e *unknownWorkflow) ErrorCode() string { return string(CodeUnknownWorkflow) }

// place finds the session of a task, notes the run's id, and has it accepted.
func (i *intake) place(ctx context.Context, l *letter, t run.Task, name string, accept func(context.Context, run.Task) error) error {
	subject := runAliasSubject(l.tenant, t.ID)
	have, revision, err := readAlias[runAlias](ctx, i.c, subject)
	if err != nil {
		return err
	}
	fresh := revision == 0
	if fresh {
		a := runAlias{Digest: l.digest, Session: i.c.HomeOf(l.tenant, t.ID)}
		if name != "" {
			if a.Session, err = i.c.resolveSession(ctx, l.tenant, name, true); err != nil {
				return err
			}
		}
		if err := i.admit(ctx, t, a.Session); err != nil {
			return err
		}
		if have, _, _, err = createAlias(ctx, i.c, subject, a); err != nil {
			return err
		}
	}
	l.placed = fresh
	switch {
	case have.Digest == "" && have.Cancelled != nil:
		return i.c.putCancelled(ctx, l.tenant, l.id) // before it was submitted
	case have.Digest != l.digest:
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
	if err := i.fork(ctx, l, &t, fresh); err != nil {
		return err
	}
	if have.Cancelled != nil && i.Enqueue != nil {
		// It shall end, not begin.
		accept = func(ctx context.Context, t run.Task) error { return i.Enqueue(ctx, t, have.Cancelled) }
	}
	err = accept(ctx, t)
	if errors.Is(err, session.ErrArchived) && !fresh {
		told, toldErr := i.c.told(ctx, l.tenant, l.id)
		switch {
		case toldErr != nil:
			err = toldErr
		case told:
			err = nil // its log is archived, and it ended long ago
		}
	}
	if err != nil {
		return err
	}
	if !fresh {
		i.tellAgain(ctx, t)
	}
	return i.cancelledMeanwhile(ctx, subject, t)
}

// tellAgain publishes the result of a run that has ended to whoever submitted
// it again. The stream holds it already, and refuses it.
func (i *intake) tellAgain(ctx context.Context, t run.Task) {
	subject := messages.RunSubject(t.Session.Tenant, t.ID, messages.OnResult)
	if m, err := i.c.last(ctx, StreamResult, subject); err == nil {
		_ = i.c.nc.Publish(subject, m.Data) // else he asks
	}
}

// fork resolves the name of the session to fork. A session that exists cannot
// become a fork, unless it is the one that another delivery of the task made.
func (i *intake) fork(ctx context.Context, l *letter, t *run.Task, fresh bool) error {
	if t.ForkOf == nil {
		return nil
	}
	id, err := i.c.resolveSession(ctx, t.Session.Tenant, string(t.ForkOf.ID), false)
	if err != nil {
		return fmt.Errorf("task %s: field fork_of: %w", t.ID, err)
	}
	ref := *t.ForkOf
	ref.ID = id
	t.ForkOf = &ref
	if !fresh {
		return nil // it exists perhaps because an earlier delivery made it
	}
	_, err = i.c.Log().Last(ctx, t.Session)
	if errors.Is(err, session.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	// The task's entry was not there when this delivery looked. A node that stood
	// still since then finds what another delivery did meanwhile.
	if has, err := i.has(ctx, l, t.Session.ID); has || err != nil {
		return err
	}
	return fmt.Errorf("task %s: %w: field fork_of: session %s exists already; leave session out to get a new one", t.ID, run.ErrMalformed, t.Session.ID)
}

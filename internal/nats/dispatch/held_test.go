package dispatch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/archive"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/schedule"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/testkit/sessiontest"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// pullWhile takes tasks for a while, and returns how often one was
// given to a log.
func pullWhile(t *testing.T, c *Dispatch, d time.Duration, in Intake) (taken int) {
	t.Helper()
	accept := in.Accept
	in.Accept = func(ctx context.Context, task journal.Task) (journal.Answer, error) {
		taken++
		if accept == nil {
			return journal.AnswerCommitted, nil
		}
		return accept(ctx, task)
	}
	streamstest.Lend(t, c.conn.NC)
	takeAll(t, c)
	synctest.Wait()
	if in.Offers == nil {
		in.Offers = func(string) (string, bool) { return "1", true }
	}
	if in.Enqueue == nil {
		in.Enqueue = func(ctx context.Context, task journal.Task, _ *journal.CancelRequested) error {
			_, err := in.Accept(ctx, task)
			return err
		}
	}
	stop := natstest.Background(t, func(ctx context.Context) error { return c.PullTasks(ctx, &in) })
	time.Sleep(d)
	synctest.Wait()
	stop()
	return taken
}

// aliasOf is the entry of a task that a session was chosen for.
func aliasOf(t *testing.T, c *Dispatch, tenant session.Tenant, body []byte) translate.Alias {
	t.Helper()
	in := must.Get(messages.DecodeTask(body))(t)
	return translate.Alias{Digest: must.Get(in.Digest(tenant, "w"))(t), Session: c.logs.HomeOf(tenant, in.ID)}
}

// TestHeldIsNotRefused delivers a task that a log holds, and that this delivery would
// refuse: because of the state of the run, as when it is pinned to another revision, or
// because the node was frozen since it found a reason. Only the log determines the run's
// outcome.
func TestHeldIsNotRefused(t *testing.T) {
	body := []byte(`{"id":"r1","input":"hi","fork_of":"talk:1"}`)
	tenant := session.DefaultTenant
	begin := func(t *testing.T, c *Dispatch) {
		t.Helper()
		a := aliasOf(t, c, tenant, body)
		if _, _, _, err := eventlog.CreateAlias(t.Context(), c.logs, eventlog.RunAliasSubject(tenant, "r1"), a); err != nil {
			t.Error(err)
		}
		submitTo(t, c.logs.Log(), session.Key{Tenant: tenant, ID: a.Session}, "r1")
	}
	name := func(t *testing.T, c *Dispatch) {
		t.Helper()
		if _, err := c.logs.ResolveSession(t.Context(), tenant, "talk", true); err != nil {
			t.Error(err)
		}
	}
	for how, play := range map[string]func(t *testing.T, c *Dispatch, w *natstest.Wire) Intake{
		"pinned": func(t *testing.T, c *Dispatch, _ *natstest.Wire) Intake {
			name(t, c)
			begin(t, c)
			return Intake{Accept: func(context.Context, journal.Task) (journal.Answer, error) {
				return "", fmt.Errorf("pinned: %w", run.ErrNotSupported)
			}}
		},
		"found no session to fork": func(t *testing.T, c *Dispatch, w *natstest.Wire) Intake {
			other := layer.Dial(t, &c.streams.O)
			hook, fired := natstest.Once(`"refused"`, func([]byte) bool {
				w.Set(nil, nil)
				name(t, other)
				begin(t, other)
				return true
			})
			w.Set(nil, hook)
			t.Cleanup(func() {
				if !fired() {
					t.Error("it was not about to be refused")
				}
			})
			return Intake{}
		},
	} {
		t.Run(how, func(t *testing.T) {
			layer.InBubble(t, func(t *testing.T, c *Dispatch, w *natstest.Wire) {
				in := play(t, c, w)
				must.Get(c.conn.JS.Publish(t.Context(), messages.TaskSubject(tenant, messages.UserAnonymous, "w"), body))(t)
				pullWhile(t, c, time.Minute, in)
				letters, tasks := streamstest.LettersAndTasks(t, c.streams)
				if state := streamstest.ResultOf(t, c.streams, tenant, "r1"); state != "" || letters != 0 || tasks != 0 {
					t.Errorf("its result says %q, %d dead letters, %d tasks wait", state, letters, tasks)
				}
			})
		})
	}
}

// TestRefusedMeanwhile gets a task into its log so late, as after a freeze of the node,
// that another delivery has refused it: the run does not continue.
func TestRefusedMeanwhile(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Dispatch, _ *natstest.Wire) {
		tenant, body := session.DefaultTenant, []byte(`{"id":"r1","input":"hi"}`)
		subject := eventlog.RunAliasSubject(tenant, "r1")
		var signals []journal.Signal
		must.Get(c.conn.JS.Publish(t.Context(), messages.TaskSubject(tenant, messages.UserAnonymous, "w"), body))(t)
		taken := pullWhile(t, c, time.Minute, Intake{
			Accept: func(ctx context.Context, _ journal.Task) (journal.Answer, error) {
				have, revision, err := eventlog.ReadAlias(ctx, c.logs, subject)
				if err != nil {
					return "", err
				}
				have.Refused = CodeUnknownWorkflow
				_, _, _, err = eventlog.PutAlias(ctx, c.logs, subject, revision, have)
				return journal.AnswerCommitted, err
			},
			Signal: func(_ context.Context, s journal.Signal) error {
				signals = append(signals, s)
				return nil
			},
		})
		if taken != 1 || len(signals) != 1 || signals[0].Run != "r1" || signals[0].Cancel == nil {
			t.Errorf("given to a log %d times, signals %+v; want a cancel", taken, signals)
		}
	})
}

// TestArchivedComesOnce redelivers a task whose run ended, and whose session is purged,
// while no node offers its workflow any more. It is neither redelivered for ever nor
// refused.
func TestArchivedComesOnce(t *testing.T) {
	layer.BesideOperator(t, func(t *testing.T, c, op *Dispatch) {
		k := session.Key{Tenant: "acme", ID: c.logs.Minter().ID("old")}
		_, at := sessiontest.Archive(t, c.logs.Log(), k)
		must.Do(t, archive.NewArchive(op.streams, op.logs, op.projections).Purge(t.Context(), k, at))
		tenant, body := k.Tenant, []byte(`{"id":"r1","input":"hi"}`)
		a := aliasOf(t, c, tenant, body)
		a.Session = k.ID
		if _, _, _, err := eventlog.CreateAlias(t.Context(), c.logs, eventlog.RunAliasSubject(tenant, "r1"), a); err != nil {
			t.Fatal(err)
		}
		r := translate.RefusedResult("r1", "w", wire.Error{}, time.Now())
		r.State = run.Succeeded
		must.Do(t, c.projections.PutResult(t.Context(), tenant, r, false))
		must.Get(c.conn.JS.Publish(t.Context(), messages.TaskSubject(tenant, messages.UserAnonymous, "w"), body))(t)
		pullWhile(t, c, 3*time.Minute, Intake{Offers: func(string) (string, bool) { return "", false }})
		letters, tasks := streamstest.LettersAndTasks(t, c.streams)
		if state := streamstest.ResultOf(t, c.streams, tenant, "r1"); state != run.Succeeded || letters != 0 || tasks != 0 {
			t.Errorf("its result says %q, %d dead letters, %d tasks wait", state, letters, tasks)
		}
	})
}

// TestRefusalGoesOn redelivers a task with a recorded refusal, because the node that
// refused it ended then. The task is stored and published, and stored once no matter how
// long the publishing fails.
func TestRefusalGoesOn(t *testing.T) {
	for name, away := range map[string]time.Duration{"at once": 0, "later": 3 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			layer.InBubble(t, func(t *testing.T, c *Dispatch, w *natstest.Wire) {
				tenant := session.DefaultTenant
				body := []byte(`{"id":"r1","input":"hi"}`)
				a := aliasOf(t, c, tenant, body)
				a.Refused = run.CodeNotFound
				if _, _, _, err := eventlog.CreateAlias(t.Context(), c.logs, eventlog.RunAliasSubject(tenant, "r1"), a); err != nil {
					t.Fatal(err)
				}
				must.Get(c.conn.JS.Publish(t.Context(), messages.TaskSubject(tenant, messages.UserAnonymous, "w"), body))(t)
				if away > 0 {
					w.Set(nil, func(b []byte) bool {
						if bytes.Contains(b, []byte("PUB rath.run.")) {
							for i := bytes.Index(b, []byte(".result ")); i > 0; i = -1 {
								copy(b[i:], ".resulx ") // without a listener
							}
						}
						return true
					})
					time.AfterFunc(away, func() { w.Set(nil, nil) })
				}
				taken := pullWhile(t, c, away+time.Minute, Intake{})
				letters, tasks := streamstest.LettersAndTasks(t, c.streams)
				if state := streamstest.ResultOf(t, c.streams, tenant, "r1"); taken != 0 || state != run.Failed || letters != 1 || tasks != 0 {
					t.Errorf("given to a log %d times, its result says %q, %d dead letters, %d tasks wait", taken, state, letters, tasks)
				}
			})
		})
	}
}

// TestLaggingRegistry submits a task of a workflow that another pool offers, while the
// answering replica does not have the offer yet. It is not refused.
func TestLaggingRegistry(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Dispatch, w *natstest.Wire) {
		must.Do(t, c.Registry.Register(t.Context(), "gpu", []messages.Workflow{{Name: "w", Revision: "1"}}))
		hook, fired := natstest.Once(`REGISTRY.workflow.\u003e`, natstest.Replace(`workflow.`, `workfloo.`))
		w.Set(nil, hook)
		must.Get(c.conn.JS.Publish(t.Context(), messages.TaskSubject(session.DefaultTenant, messages.UserAnonymous, "w"), []byte(`{"id":"r1","input":"hi"}`)))(t)
		queued := 0
		pullWhile(t, c, time.Minute, Intake{
			Offers:  func(string) (string, bool) { return "", false },
			Enqueue: func(context.Context, journal.Task, *journal.CancelRequested) error { queued++; return nil },
		})
		letters, tasks := streamstest.LettersAndTasks(t, c.streams)
		if !fired() || queued != 1 || letters != 0 || tasks != 0 {
			t.Errorf("replicas were asked: %v, given to a log %d times, %d dead letters, %d tasks wait", fired(), queued, letters, tasks)
		}
	})
}

// TestUnreadRegistry delivers tasks to a node for all tenants that offers their workflow,
// as nodes of the tenant do, while the registry does not answer: the node makes no decision
// without it. The node leaves the run to a relay, and the relay asks again.
func TestUnreadRegistry(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Dispatch, w *natstest.Wire) {
		tenant := session.DefaultTenant
		pool, offers := messages.BoundPool(tenant), []messages.Workflow{{Name: "w", Revision: "1"}}
		must.Do(t, errors.Join(c.Registry.Register(t.Context(), DefaultPool, offers), c.Registry.Register(t.Context(), pool, offers)))
		incarnation, err := messages.BoundIncarnation(tenant, "AAAAAAAAAAAA")
		must.Do(t, err)
		entry, err := messages.Encode(messages.Node{Incarnation: incarnation, Pools: []string{pool}})
		if err == nil {
			_, err = c.messages.Publish(t.Context(), &nats.Msg{Subject: streams.KeySubject(streams.BucketNode, incarnation), Data: entry})
		}
		must.Do(t, err)
		silent := func() (asked func() bool) {
			hook, fired := natstest.Once("GET.KV_REGISTRY", natstest.Replace("GET.KV_REGISTRY", "GET.KV_REGISTER"))
			w.Set(nil, hook)
			return fired
		}

		asked := silent()
		must.Get(c.conn.JS.Publish(t.Context(), messages.TaskSubject(tenant, messages.UserAnonymous, "w"), []byte(`{"id":"r1","input":"hi"}`)))(t)
		queued := 0
		begun := pullWhile(t, c, 10*time.Second, Intake{ // the entry lives longer
			Enqueue: func(context.Context, journal.Task, *journal.CancelRequested) error { queued++; return nil },
		})
		if !asked() || begun != 0 || queued != 1 {
			t.Errorf("the registry was asked: %v; the task was begun here %d times, and given to a log %d times", asked(), begun, queued)
		}

		o := &RelayOptions{}
		d := &dispatcher{c: c, o: o.complete(c)}
		place := func() schedule.Outcome {
			return d.act(t.Context(), schedule.Action{Kind: schedule.Place, Tenant: tenant, Workflow: "w", Revision: "1"})
		}
		asked = silent()
		if o := place(); !asked() || o.Result != schedule.Failed {
			t.Errorf("the registry was asked: %v; without an answer the pools are %v, known: %v", asked(), o.Pools, o.Result == schedule.Settled)
		}
		if o := place(); o.Result != schedule.Settled || len(o.Pools) != 1 || o.Pools[0].Name != pool {
			t.Errorf("the pools are %v, known: %v; want %s", o.Pools, o.Result == schedule.Settled, pool)
		}
	})
}

package streams

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
)

// operatorOf connects as an operator that provisions: it does not store.
func operatorOf(t *testing.T, srv *natsserver.Server) *Conn {
	t.Helper()
	user, password := srv.Operator()
	return dial(t, &Options{Options: conn.Options{Dialer: srv.Dial, User: user, Password: password, Inbox: conn.NodeInbox}, Client: true})
}

// planned plans and applies.
func planned(t *testing.T, c *Conn, p *Provisioning) *Plan {
	t.Helper()
	plan, err := c.Plan(t.Context(), p)
	if err == nil {
		err = c.Apply(t.Context(), plan)
	}
	must.Do(t, err)
	return plan
}

func actions(p *Plan) map[Action][]string {
	all := map[Action][]string{}
	for _, ch := range p.Changes {
		all[ch.Action] = append(all[ch.Action], ch.Name)
	}
	return all
}

// TestPlan provisions a new installation, again, and with other wishes.
func TestPlan(t *testing.T) {
	ctx := t.Context()
	srv := natstest.Start(t, nil)
	c := operatorOf(t, srv)
	plan, err := c.Plan(ctx, &Provisioning{Partitions: 3, Replicas: 1})
	must.Do(t, err)
	want := []string{
		"EV_1_0", "EV_1_1", "EV_1_2", "SNAP", "BLOB", "MEMORY", "TASKS", "LINEAGE", "RESULT", "DLQ", "NODE", "REGISTRY", "ALIAS", "ACCESS", "TASKS/tasks",
	}
	if got := actions(plan)[Create]; !slices.Equal(got, want) {
		t.Errorf("creates %v, want %v", got, want)
	}
	if info, err := c.Reconciler.LookStream(ctx, StreamTasks); info != nil || err != nil {
		t.Errorf("a plan made a stream: %v, %v", info, err)
	}
	must.Do(t, c.Apply(ctx, plan))
	if p := planned(t, c, nil); len(p.Pending()) != 0 || p.Partitions != 3 || p.Replicas != 1 || len(actions(p)[Keep]) != len(want) {
		t.Errorf("a second time: %+v", p)
	}

	// A node finds everything, also how many partitions there are.
	o := nodeOptions(srv)
	o.Partitions = 0
	node := dial(t, o)
	if err := node.Verify(ctx); err != nil || node.Partitions() != 3 {
		t.Errorf("a node finds %d partitions and %v", node.Partitions(), err)
	}
	o.Partitions = 5
	if err := dial(t, o).Verify(ctx); err == nil || !strings.Contains(err.Error(), "partitions of the generation is 3, want 5") {
		t.Errorf("a node that was told 5: %v", err)
	}

	// The operator's choices.
	p := planned(t, c, &Provisioning{StoreBytes: 16 << 30, KeepResults: 48 * time.Hour, Tags: nil})
	if got := actions(p); len(got[Update]) != 14 || len(got[Create]) != 0 {
		t.Errorf("more bytes, results for two days: %v", got)
	}
	result, err := c.Reconciler.LookStream(ctx, StreamResult)
	if err != nil || result.Config.MaxAge != 48*time.Hour || result.Config.MaxBytes != 16<<30/1000*20 {
		t.Errorf("results: %+v, %v", result.Config, err)
	}
	if p := planned(t, c, &Provisioning{}); len(p.Pending()) != 0 {
		t.Errorf("what was chosen is not kept: %+v", p.Pending())
	}
}

// TestPlanRefuses asks for changes that would lose or hide data.
func TestPlanRefuses(t *testing.T) {
	ctx := t.Context()
	srv := natstest.Start(t, nil)
	c := operatorOf(t, srv)
	planned(t, c, &Provisioning{Replicas: 1})
	if _, err := c.Plan(ctx, &Provisioning{Partitions: 6}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "4 partitions, not 6") {
		t.Errorf("another number of partitions: %v", err)
	}
	one := operatorOf(t, natstest.Start(t, nil))
	planned(t, one, &Provisioning{Partitions: 1, Replicas: 1})
	if _, err := one.Plan(ctx, &Provisioning{Partitions: 6}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "1 partition, not 6") {
		t.Errorf("more than one partition: %v", err)
	}
	refuses := func(name string, p *Provisioning, words ...string) {
		t.Helper()
		plan, err := c.Plan(ctx, p)
		must.Do(t, err)
		err = c.Apply(ctx, plan)
		if !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", name, err)
			return
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v, want %q", name, err, w)
			}
		}
	}
	// With three replicas instead of one, asynchronous writes would become synchronous.
	refuses("more replicas", &Provisioning{Replicas: 3}, "stream SNAP: persist mode is Async")

	node := dial(t, nodeOptions(srv))
	for range 5 {
		must.Get(node.Conn.JS.Publish(ctx, PrefixDLQ+"acme.w", make([]byte, 900<<10)))(t)
	}
	refuses("less than there is", &Provisioning{StoreBytes: MinStoreBytes}, "stream DLQ: max bytes", "it holds 4.4 MiB")
	if info, err := c.Reconciler.LookStream(ctx, StreamTasks); err != nil || info.Config.Duplicates != taskDuplicates {
		t.Errorf("the duplicate window of the stream of tasks is %v, %v; want %v", info.Config.Duplicates, err, taskDuplicates)
	}
	if info, err := c.Reconciler.LookStream(ctx, StreamTasks); err != nil || info.Config.MaxBytes != DefaultStoreBytes/1000*115 {
		t.Errorf("a refused plan changed something: %+v, %v", info.Config, err)
	}

	alter := func(name string, change func(*jetstream.StreamConfig)) {
		t.Helper()
		s := must.Get(c.Conn.JS.Stream(ctx, name))(t)
		cfg := s.CachedInfo().Config
		change(&cfg)
		must.Get(c.Conn.JS.UpdateStream(ctx, cfg))(t)
	}
	alter(StreamDLQ, func(s *jetstream.StreamConfig) { s.Discard = jetstream.DiscardNew; s.Description = "ours" })
	p := planned(t, c, nil)
	if got := actions(p)[Update]; !slices.Equal(got, []string{StreamDLQ}) {
		t.Errorf("repairs %v", got)
	}
	if info, err := c.Reconciler.LookStream(ctx, StreamDLQ); err != nil || info.Config.Discard != jetstream.DiscardOld || info.Config.Description != "ours" {
		t.Errorf("repaired, and what is not ours kept: %+v, %v", info.Config, err)
	}
	alter(StreamDLQ, func(s *jetstream.StreamConfig) { s.Subjects = []string{"letters.>"} })
	refuses("somebody else's stream", nil, "stream DLQ: subjects is letters.>", "a foreign stream")
}

// TestPlanFewerReplicas needs no cluster: it compares the wanted replicas with a stream's
// configuration.
func TestPlanFewerReplicas(t *testing.T) {
	o := Options{Replicas: 3, Partitions: 1}
	o.setDefaults()
	less := o
	less.Replicas = 1
	for i, have := range layout(&o) {
		for agreed, want := range map[bool]Action{false: Refuse, true: Update} {
			ch := streamChange(layout(&less)[i])
			ch.found(&have)
			p := &Provisioning{Replicas: 1, FewerReplicas: agreed}
			p.choose(&ch, jetstream.StreamState{})
			ch.decide()
			if ch.Action != want {
				t.Errorf("agreed %v: %s %+v", agreed, ch.Action, ch.Differences)
			}
		}
	}
}

// TestPlanOfOtherSettings sets streams up again that note no number of partitions, are
// compressed, or take larger tasks.
func TestPlanOfOtherSettings(t *testing.T) {
	ctx := t.Context()
	srv := natstest.Start(t, nil)
	o := nodeOptions(srv)
	o.Partitions = 2
	found := dial(t, o)
	for _, cfg := range layout(&found.O) {
		cfg.Metadata = nil
		if cfg.Storage == jetstream.FileStorage && cfg.Retention == jetstream.LimitsPolicy {
			cfg.Compression = jetstream.S2Compression
		}
		if cfg.Name == StreamTasks {
			cfg.MaxMsgSize, cfg.MaxMsgsPerSubject, cfg.MaxBytes = -1, 1000, DefaultStoreBytes/1000*40
		}
		must.Get(found.Conn.JS.CreateStream(ctx, cfg))(t)
	}
	if err := found.Verify(ctx); err == nil || strings.Contains(err.Error(), settingPartitions) {
		t.Errorf("a node with streams of other settings: %v", err)
	}
	c := operatorOf(t, srv)
	large, small := bytes.Repeat([]byte(" "), messages.MaxTask+1), []byte("{}")
	for range 3 {
		must.Get(c.Conn.JS.Publish(ctx, "rath.task.t.anonymous.w", large))(t)
	}
	p := planned(t, c, nil)
	if got := actions(p)[Update]; !slices.Equal(got, []string{"EV_1_0", "EV_1_1", "SNAP", "BLOB", "MEMORY", "TASKS", "LINEAGE", "RESULT", "DLQ", "REGISTRY", "ALIAS", "ACCESS"}) || p.Partitions != 2 {
		t.Errorf("updates %v with %d partitions", got, p.Partitions)
	}
	// Waiting messages stay, and no more of that size are accepted.
	if info, err := c.Reconciler.LookStream(ctx, StreamTasks); err != nil || info.State.Msgs != 3 || info.Config.MaxMsgSize != messages.MaxTask || info.Config.MaxMsgsPerSubject != 1000 {
		t.Errorf("the stream of tasks: %+v, %v", info, err)
	}
	if _, err := c.Conn.JS.Publish(ctx, "rath.task.t.anonymous.w", large); err == nil {
		t.Error("a task that is too large was stored")
	}
	if _, err := c.Conn.JS.Publish(ctx, "rath.task.t.anonymous.w", small); err != nil {
		t.Error(err)
	}
	p = planned(t, c, &Provisioning{StoreBytes: DefaultStoreBytes})
	if info, err := c.Reconciler.LookStream(ctx, StreamTasks); err != nil || info.State.Msgs != 4 || info.Config.MaxBytes < (fullWorkflows+1)*info.Config.MaxMsgsPerSubject*messages.MaxTask {
		t.Errorf("the stream of tasks has %+v after %v, %v", info, actions(p), err)
	}
	must.Report(t, found.Provision(ctx))
}

// TestProvisionMendsConsumers changes a consumer, also one on disk as made by an earlier
// release; it has no settings chosen by an operator, so a node repairs it.
func TestProvisionMendsConsumers(t *testing.T) {
	ctx := t.Context()
	c := open(t)
	cfg := TasksQueue().config()
	must.Do(t, c.Conn.JS.DeleteConsumer(ctx, StreamTasks, cfg.Durable))
	cfg.MemoryStorage = false
	must.Get(c.Conn.JS.CreateConsumer(ctx, StreamTasks, cfg))(t)
	if err := errors.Join(c.Verify(ctx), c.Provision(ctx), c.Verify(ctx)); err != nil {
		t.Errorf("one on disk: %v", err)
	}
	cfg.AckWait = time.Hour
	must.Get(c.Conn.JS.UpdateConsumer(ctx, StreamTasks, cfg))(t)
	e, ok := errors.AsType[*MismatchError](c.Verify(ctx))
	if !ok || len(e.Mismatches) != 1 || e.Mismatches[0].Field != "consumer tasks: ack wait" || e.Mismatches[0].Got != "1h0m0s" {
		t.Errorf("Verify: %v", e)
	}
	must.Report(t, errors.Join(c.Provision(ctx), c.Verify(ctx)))
}

package streams

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

func TestProvision(t *testing.T) {
	ctx := t.Context()
	c := open(t)
	var names []string
	for name := range c.Conn.JS.StreamNames(ctx).Name() {
		names = append(names, name)
	}
	slices.Sort(names)
	want := []string{"BLOB", "DLQ", "EV_1_0", "EV_1_1", "KV_ACCESS", "KV_ALIAS", "KV_NODE", "KV_REGISTRY", "LINEAGE", "MEMORY", "RESULT", "SNAP", "TASKS"}
	if !slices.Equal(names, want) {
		t.Errorf("streams %v, want %v", names, want)
	}
	if err := c.Provision(ctx); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if err := c.Verify(ctx); err != nil {
		t.Errorf("Verify: %v", err)
	}
}

func TestProvisionTogether(t *testing.T) {
	srv := natstest.Start(t, nil)
	const nodes = 3
	errs := make(chan error, nodes)
	for range nodes {
		c := dial(t, nodeOptions(srv))
		go func() { errs <- c.Provision(t.Context()) }()
	}
	for range nodes {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// TestLayoutForThree checks the settings that change with three replicas; a server that
// clusters checks the settings themselves, in the end-to-end tests.
func TestLayoutForThree(t *testing.T) {
	o := Options{Replicas: 3, Partitions: DefaultPartitions}
	o.setDefaults()
	memory := map[string]bool{"KV_" + BucketNode: true}
	for _, cfg := range layout(&o) {
		if cfg.Replicas != 3 {
			t.Errorf("%s has %d replicas", cfg.Name, cfg.Replicas)
		}
		if cfg.PersistMode != jetstream.DefaultPersistMode {
			t.Errorf("%s has persist mode %v, which servers take on one replica only", cfg.Name, cfg.PersistMode)
		}
		if (cfg.Storage == jetstream.MemoryStorage) != memory[cfg.Name] {
			t.Errorf("%s is stored in %v", cfg.Name, cfg.Storage)
		}
	}
}

func TestLayoutSharesAtMostEverything(t *testing.T) {
	o := Options{Partitions: DefaultPartitions}
	o.setDefaults()
	var sum int64
	for _, cfg := range layout(&o) {
		if cfg.MaxBytes <= 0 {
			t.Errorf("%s is not bounded", cfg.Name)
		}
		sum += cfg.MaxBytes
	}
	if sum > o.StoreBytes || sum < o.StoreBytes*9/10 {
		t.Errorf("the streams share %d of %d bytes", sum, o.StoreBytes)
	}
}

// TestMismatch changes each compared setting of a stream that an operator
// could change, and expects it to be reported and left alone.
func TestMismatch(t *testing.T) {
	ctx := t.Context()
	c := dial(t, nodeOptions(natstest.Start(t, &natsserver.Options{OperatorPassword: operatorPassword})))
	must.Do(t, c.Provision(ctx))
	alter := map[string]func(*jetstream.StreamConfig){
		"subjects":                 func(s *jetstream.StreamConfig) { s.Subjects = append(s.Subjects, "more.>") },
		"discard":                  func(s *jetstream.StreamConfig) { s.Discard = jetstream.DiscardOld },
		"max bytes":                func(s *jetstream.StreamConfig) { s.MaxBytes = -1 },
		"max messages":             func(s *jetstream.StreamConfig) { s.MaxMsgs = 10 },
		"max messages per subject": func(s *jetstream.StreamConfig) { s.MaxMsgsPerSubject = 1 },
		"max message size":         func(s *jetstream.StreamConfig) { s.MaxMsgSize = 100 },
		"max age":                  func(s *jetstream.StreamConfig) { s.MaxAge = time.Hour },
		"duplicate window":         func(s *jetstream.StreamConfig) { s.Duplicates = time.Minute },
		"no ack":                   func(s *jetstream.StreamConfig) { s.NoAck = true },
		"rollup allowed":           func(s *jetstream.StreamConfig) { s.AllowRollup = true },
		"direct get":               func(s *jetstream.StreamConfig) { s.AllowDirect = false },
		"republish": func(s *jetstream.StreamConfig) {
			s.RePublish = &jetstream.RePublish{Source: "rath.ev.>", Destination: "leak.>"}
		},
		"message TTL allowed": func(s *jetstream.StreamConfig) { s.AllowMsgTTL = true },
	}
	stream := EventStream(1, 0)
	for field, change := range alter {
		t.Run(field, func(t *testing.T) {
			s, err := c.Conn.JS.Stream(ctx, stream)
			must.Do(t, err)
			altered := s.CachedInfo().Config
			change(&altered)
			if s, err = c.Conn.JS.UpdateStream(ctx, altered); err != nil {
				t.Fatal(err)
			}
			err = c.Provision(ctx)
			e, ok := errors.AsType[*MismatchError](err)
			if !ok || len(e.Mismatches) != 1 {
				t.Fatalf("got %v, want one mismatch", err)
			}
			m := e.Mismatches[0]
			if m.Stream != stream || m.Field != field || m.Want == m.Got || m.Remedy == "" {
				t.Errorf("got %+v, want field %s of %s", m, field, stream)
			}
			for _, want := range []string{stream, field, m.Want, m.Got} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not name %q", err, want)
				}
			}
			after, err := s.Info(ctx)
			must.Do(t, err)
			if diff := differences(&altered, &after.Config); len(diff) > 0 {
				t.Errorf("Provision altered the stream: %v", diff)
			}
			// Not every change can be reverted, so the next one starts from the beginning.
			recreate(t, c, stream)
		})
	}
}

const operatorPassword = "operator of this test"

// shortly is for a request that the server refuses by not answering it.
func shortly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// recreate removes a stream, as only the operator may, and provisions it.
func recreate(t *testing.T, c *Conn, stream string) {
	t.Helper()
	o := c.O
	o.User, o.Password = "operator", operatorPassword
	op := must.Get(connect(t.Context(), &o))(t)
	defer op.Conn.Close()
	must.Do(t, op.Conn.JS.DeleteStream(t.Context(), stream))
	must.Do(t, c.Provision(t.Context()))
}

func TestVerifyMissing(t *testing.T) {
	c := dial(t, nodeOptions(natstest.Start(t, nil)))
	e, ok := errors.AsType[*MismatchError](c.Verify(t.Context()))
	if !ok || len(e.Mismatches) != len(layout(&c.O)) || e.Mismatches[0].Got != "missing" {
		t.Errorf("got %v, want every stream missing", e)
	}
}

func TestProvisionTooLittle(t *testing.T) {
	srv := natstest.Start(t, &natsserver.Options{MaxStore: 1 << 30})
	c := dial(t, nodeOptions(srv))
	err := c.Provision(t.Context())
	if !errors.Is(err, conn.ErrFull) || !strings.Contains(err.Error(), "stream ") || !strings.Contains(err.Error(), "8.0 GiB") {
		t.Errorf("8 GiB of streams on a server with 1 GiB: %v", err)
	}
	o := nodeOptions(srv)
	o.StoreBytes = 1 << 20
	if err := dial(t, o).Provision(t.Context()); err == nil || !strings.Contains(err.Error(), "1048576") {
		t.Errorf("1 MiB for everything: %v", err)
	}
	o.StoreBytes = 512 << 20
	srv = natstest.Start(t, &natsserver.Options{MaxStore: 1 << 30})
	o2 := nodeOptions(srv)
	o2.StoreBytes = 512 << 20
	if err := dial(t, o2).Provision(t.Context()); err != nil {
		t.Errorf("512 MiB of 1 GiB: %v", err)
	}
}

// TestStreamsKeepTheirPromises publishes to each kind of stream beyond its limits.
func TestStreamsKeepTheirPromises(t *testing.T) {
	ctx := t.Context()
	c := open(t)
	t.Run("one result per run", func(t *testing.T) {
		const subject = "rath.run.default.r1.result"
		first, err := c.Messages.PublishExpecting(ctx, subject, 0, nil, []byte("first"))
		must.Do(t, err)
		if _, err := c.Messages.PublishExpecting(ctx, subject, 0, nil, []byte("second")); err == nil {
			t.Error("a second result was stored")
		}
		m, err := c.Messages.LeaderLast(ctx, StreamResult, subject)
		if err != nil || string(m.Data) != "first" {
			t.Errorf("stored %q, %v", m.Data, err)
		}
		if _, err := c.Messages.PublishExpecting(ctx, subject, first, nil, []byte("settled")); err != nil {
			t.Error(err)
		}
		m, err = c.Messages.LeaderLast(ctx, StreamResult, subject)
		if err != nil || string(m.Data) != "settled" {
			t.Errorf("stored %q in place of the first, %v", m.Data, err)
		}
		if n, err := c.Subjects(ctx, StreamResult, subject); err != nil || n[subject] != 1 {
			t.Errorf("%d results are stored, %v", n[subject], err)
		}
	})
	t.Run("acknowledged task is gone", func(t *testing.T) {
		must.Get(c.Conn.JS.Publish(ctx, "rath.task.default.anonymous.w", []byte("{}")))(t)
		cons, err := c.Reconciler.OpenQueue(ctx, &Lookup{}, TasksQueue())
		must.Do(t, err)
		m, err := cons.Next(jetstream.FetchMaxWait(5 * time.Second))
		must.Do(t, err)
		must.Do(t, m.DoubleAck(ctx))
		s, err := c.Conn.JS.Stream(ctx, StreamTasks)
		if err != nil || s.CachedInfo().State.Msgs != 0 {
			t.Errorf("%d tasks left, %v", s.CachedInfo().State.Msgs, err)
		}
	})
	t.Run("events are not removed", func(t *testing.T) {
		ack := must.Get(c.Conn.JS.Publish(ctx, "rath.ev.1.0.default.s", []byte("x")))(t)
		s := must.Get(c.Conn.JS.Stream(ctx, EventStream(1, 0)))(t)
		if err := s.DeleteMsg(shortly(t), ack.Sequence); err == nil {
			t.Error("a node deleted an event")
		}
		// A rollup would remove the earlier events of the subject.
		m := nats.NewMsg("rath.ev.1.0.default.s")
		m.Header.Set(nats.MsgRollup, nats.MsgRollupSubject)
		if _, err := c.Conn.JS.PublishMsg(ctx, m); err == nil {
			t.Error("a rollup was accepted")
		}
	})
	t.Run("key-value clients", func(t *testing.T) {
		for _, b := range []string{BucketNode, BucketRegistry, BucketAlias} {
			kv, err := c.Conn.JS.KeyValue(ctx, b)
			if err != nil {
				t.Fatalf("%s: %v", b, err)
			}
			if _, err := kv.Create(ctx, "k", []byte("v")); err != nil {
				t.Errorf("%s: %v", b, err)
			}
			if _, err := kv.Create(ctx, "k", []byte("w")); !errors.Is(err, jetstream.ErrKeyExists) {
				t.Errorf("%s: created twice: %v", b, err)
			}
		}
	})
}

// TestOrdersBatches: servers before 2.14 get no requests that they reject.
func TestOrdersBatches(t *testing.T) {
	for version, want := range map[string]bool{
		"2.12.4": false, "2.11.0-RC.1": false, "2.14.0": true, "2.15.2-dev": true, "3.0.0": true, "": false,
	} {
		if got := ordersBatches(version); got != want {
			t.Errorf("%q: %t", version, got)
		}
	}
}

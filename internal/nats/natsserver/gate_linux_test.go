package natsserver_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// story makes streams of all kinds and writes to them, from inside of the process and from
// outside, and remembers the acknowledged messages.
type story struct {
	t    *testing.T
	js   jetstream.JetStream
	want map[string]map[uint64]string // by stream and sequence: the expected messages
	last map[string]uint64            // by subject, of LAST
}

func tell(t *testing.T, nc *nats.Conn) *story {
	t.Helper()
	js := must.Get(jetstream.New(nc))(t)
	return &story{t, js, map[string]map[uint64]string{}, map[string]uint64{}}
}

// stream makes one whose blocks hold 32 KiB.
func (s *story) stream(name string, perSubject int64, retention jetstream.RetentionPolicy) {
	s.t.Helper()
	cfg := jetstream.StreamConfig{
		Name: name, Subjects: []string{name + ".>"}, MaxBytes: 100 << 10, MaxMsgsPerSubject: perSubject, Retention: retention, Discard: jetstream.DiscardOld,
	}
	if retention == jetstream.LimitsPolicy {
		cfg.Compression = jetstream.S2Compression
	}
	must.Get(s.js.CreateStream(s.t.Context(), cfg))(s.t)
	s.want[name] = map[uint64]string{}
}

func (s *story) publish(name, subject string, size int) {
	s.t.Helper()
	body := make([]byte, size)
	for i := range body {
		body[i] = 'a' + byte(rand.IntN(26))
	}
	ack := must.Get(s.js.Publish(s.t.Context(), name+"."+subject, body))(s.t)
	s.want[name][ack.Sequence] = string(body)
	if name == "LAST" {
		delete(s.want[name], s.last[subject])
		s.last[subject] = ack.Sequence
	}
}

// work takes a message.
func (s *story) work(c jetstream.Consumer) {
	s.t.Helper()
	m, err := c.Next()
	var meta *jetstream.MsgMetadata
	if err == nil {
		meta, err = m.Metadata()
	}
	if err == nil {
		err = m.DoubleAck(s.t.Context())
	}
	must.Do(s.t, err)
	delete(s.want["WORK"], meta.Sequence.Stream)
}

// check compares the contents of a store with the acknowledged messages.
func (s *story) check(dir string) {
	s.t.Helper()
	srv := start(s.t, natsserver.Options{StoreDir: dir, Open: true})
	nc, _ := connect(s.t, srv, "", "")
	defer nc.Close()
	js := must.Get(jetstream.New(nc))(s.t)
	for name, want := range s.want {
		stream, err := js.Stream(s.t.Context(), name)
		if err != nil {
			s.t.Fatalf("stream %s: %v", name, err)
		}
		for seq, body := range want {
			m, err := stream.GetMsg(s.t.Context(), seq)
			if errors.Is(err, jetstream.ErrMsgNotFound) && name == "LOG" && seq < stream.CachedInfo().State.FirstSeq {
				continue // it had no room for more
			}
			if err != nil || string(m.Data) != body {
				s.t.Errorf("stream %s holds %+v: message %d: %v", name, stream.CachedInfo().State, seq, err)
			}
		}
	}
	must.Report(s.t, srv.Shutdown(context.WithoutCancel(s.t.Context())))
}

// TestRounds cuts the power after acknowledgements all through a story in which blocks are
// begun, compressed, rewritten and removed, streams are made and purged, and a client
// outside of the process writes: no acknowledged message is lost.
func TestRounds(t *testing.T) {
	power := natstest.NewPower(t)
	o := power.Options()
	o.Open, o.Port = true, -1
	srv := start(t, *o)
	inside, _ := connect(t, srv, "", "")
	outside := must.Get(nats.Connect(srv.URL()))(t)
	defer outside.Close()
	for _, nc := range []*nats.Conn{inside, outside} {
		s := tell(t, nc)
		for _, name := range []string{"LOG", "LAST", "WORK"} {
			_ = s.js.DeleteStream(t.Context(), name)
		}
		s.stream("LOG", -1, jetstream.LimitsPolicy)
		s.check(power.Cut())
		s.stream("LAST", 1, jetstream.LimitsPolicy)
		s.stream("WORK", -1, jetstream.WorkQueuePolicy)
		work, err := s.js.CreateConsumer(t.Context(), "WORK", jetstream.ConsumerConfig{Durable: "w", AckPolicy: jetstream.AckExplicitPolicy})
		must.Do(t, err)
		for n := range 120 {
			s.publish("LOG", fmt.Sprint("s", n%7), 900+n)
			s.publish("LAST", fmt.Sprint("s", n%7), 900)
			s.publish("WORK", fmt.Sprint("s", n%7), 900)
			if n%3 > 0 {
				s.work(work)
			}
			if n%40 == 39 {
				s.check(power.Cut())
			}
		}
		s.want["LAST"] = map[uint64]string{}
		stream, err := s.js.Stream(t.Context(), "LAST")
		if err == nil {
			err = stream.Purge(t.Context())
		}
		must.Do(t, err)
		s.publish("LAST", "s", 10)
		s.check(power.Cut())
	}
}

// TestWritersShareRounds: during a round, further writes wait for the next one, which
// serves all of them.
func TestWritersShareRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		blocks := 0
		srv := natstest.Start(t, &natsserver.Options{Open: true, SyncFile: func(path string) error {
			if strings.HasSuffix(path, ".blk") {
				time.Sleep(5 * time.Millisecond) // until all that come have written
				mu.Lock()
				defer mu.Unlock()
				blocks++
			}
			return nil
		}})
		nc, _ := connect(t, srv, "", "")
		s := tell(t, nc)
		s.stream("LOG", -1, jetstream.LimitsPolicy)
		const writers, each = 16, 10
		var work sync.WaitGroup
		for range writers {
			work.Go(func() {
				for range each {
					if _, err := s.js.Publish(t.Context(), "LOG.a", []byte("x")); err != nil {
						t.Error(err)
					}
				}
			})
		}
		work.Wait()
		t.Logf("%d syncs for %d writes of %d writers", blocks, writers*each, writers)
		if blocks > writers*each/4 {
			t.Errorf("%d syncs for %d writes of %d writers", blocks, writers*each, writers)
		}
	})
}

// TestSyncFails: a write that could not be synced is not acknowledged, nor any after it,
// and the server reports the error.
func TestSyncFails(t *testing.T) {
	var mu sync.Mutex
	broken := false
	cause := errors.New("the disk is on fire")
	srv := start(t, natsserver.Options{Open: true, SyncFile: func(string) error {
		mu.Lock()
		defer mu.Unlock()
		if broken {
			return cause
		}
		return nil
	}})
	nc, _ := connect(t, srv, "", "")
	s := tell(t, nc)
	s.stream("LOG", -1, jetstream.LimitsPolicy)
	s.publish("LOG", "a", 10)
	mu.Lock()
	broken = true
	mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if ack, err := s.js.Publish(ctx, "LOG.a", []byte("x")); err == nil {
		t.Fatalf("acknowledged as %d", ack.Sequence)
	}
	<-srv.Failed()
	mu.Lock()
	broken = false // the kernel reports an error once
	mu.Unlock()
	if err := srv.Err(); !errors.Is(err, natsserver.ErrSync) || !errors.Is(err, cause) || !strings.Contains(err.Error(), "restart the process") {
		t.Errorf("error %v", err)
	}
	if _, err := srv.Dial(); !errors.Is(err, natsserver.ErrSync) {
		t.Errorf("dial afterwards: %v", err)
	}
}

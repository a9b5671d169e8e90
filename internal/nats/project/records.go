package project

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/messages"
)

const (
	// batchMost and batchBytes bound the messages of one batch.
	batchMost  = 256
	batchBytes = 512 << 10
)

// batches decides whether LINEAGE gets several messages at once. If every message costs a
// round among the replicas, or waits for a sync, single messages would be slower than
// commits.
type batches struct {
	// publish stores messages one after the other, and returns the sequence of the last
	// one. An error leaves open whether the first ones are stored. It is nil if the stream
	// accepts one message at a time.
	publish func(ctx context.Context, some []*nats.Msg) (uint64, error)
	// alone is set if another server alone holds LINEAGE, and other relays store in it,
	// too. If that server loses the end, the sequence of the next message does not show it.
	// A repair begins behind a message that may be another relay's, and does not check.
	alone bool
	// late limits batches to relays that would otherwise be behind for longer than
	// lateMost. Servers that agree on each message get all waiting messages in batches.
	late bool
}

// lateMost is the approximate lag up to which a relay gives the server one message at a
// time. A burst on a fast disk does not take as long, and commits of runs would wait behind
// batches: 64 sessions made a fifth fewer turns. Queries wait for the relay, and give up
// after historyWait: the other half is left for their reads.
const (
	lateMost  = historyWait / 2
	tookShare = 8 // the weight of the last message is one in tookShare
)

// several reports whether to publish messages in a batch while so many commits wait.
func (p *LineageRelay) several(waiting uint64) bool {
	return p.batches.publish != nil && (!p.batches.late || time.Duration(waiting)*p.took > lateMost)
}

func (p *LineageRelay) batchesOf(ctx context.Context) (batches, error) {
	return conn.Retry(ctx, func(ctx context.Context) (batches, error) {
		info, err := p.C.messages.StreamInfo(ctx, streams.StreamLineage)
		switch {
		case err != nil:
			return batches{}, fmt.Errorf("nats/project: look at stream %s: %w", streams.StreamLineage, conn.StreamError(err))
		case info.Config.AllowAtomicPublish:
			return batches{publish: p.C.messages.PublishBatch}, nil
		case info.Config.AllowBatchPublish:
			return batches{publish: p.C.messages.PublishInOrder, late: true, alone: p.alone(info)}, nil
		}
		return batches{alone: p.alone(info)}, nil
	})
}

// alone reports whether LINEAGE can lose its end without the loss of this connection: its
// only replica is on another server than the one this process is connected to.
func (p *LineageRelay) alone(info *jetstream.StreamInfo) bool {
	return info.Config.Replicas == 1 && p.C.streams.Partitions() > 1 &&
		info.Cluster != nil && info.Cluster.Leader != p.C.conn.NC.ConnectedServerName()
}

// encoded is an encoded message of LINEAGE.
type encoded struct {
	records []messages.Record // of one commit
	subject string
	data    []byte
}

// last returns the last record of the message.
func (m *encoded) last() *messages.Record { return &m.records[len(m.records)-1] }

// publish stores the unstored records of commits in order, and publishes them to the
// clients that watch their trees and runs.
func (p *LineageRelay) publish(ctx context.Context, commits [][]messages.Record) error {
	all := make([]encoded, 0, len(commits))
	for _, records := range commits {
		for rest := p.unstored(records); len(rest) > 0; {
			some := rest[:min(len(rest), lineage.MaxStored)]
			rest = rest[len(some):]
			data, err := lineage.EncodeStored(some)
			if err != nil {
				p.C.conn.Logger.Error("the lineage of a commit does not encode", "stream", p.Stream, "seq", some[0].Seq, "err", err)
				continue
			}
			all = append(all, encoded{some, lineage.StoredSubject(some), data})
		}
	}
	for {
		all = p.fresh(all)
		if len(all) == 0 {
			return nil
		}
		some := all[:1]
		if p.batches.publish != nil {
			some = all[:batchOf(all)]
		}
		at, err := p.store(ctx, some)
		if err != nil {
			return err
		}
		p.at = at
		p.pace.Changed()
		for i := range some {
			if !at.covers(some[i].last()) {
				break
			}
			if !p.mute {
				p.tell(some[i].records)
			}
		}
	}
}

// tell publishes stored records, one by one. It is live only: a client that was not
// subscribed reads LINEAGE.
func (p *LineageRelay) tell(records []messages.Record) {
	for i := range records {
		r := &records[i]
		text, err := lineage.AppendRecord(r, p.text[:0])
		if err != nil {
			p.C.conn.Logger.Error("a lineage record does not encode", "stream", p.Stream, "seq", r.Seq, "err", err)
			continue
		}
		p.text = text
		_ = p.C.conn.NC.Publish(lineage.TailSubject(r), text)
		if r.Run != "" {
			_ = p.C.conn.NC.Publish(messages.RunSubject(r.Tenant, r.Run, messages.OnEvent), text)
		}
	}
}

// unstored returns the unstored records of a commit.
func (p *LineageRelay) unstored(records []messages.Record) []messages.Record {
	i := slices.IndexFunc(records, func(r messages.Record) bool { return !p.at.covers(&r) })
	if i < 0 {
		return nil
	}
	return records[i:]
}

// fresh returns the unstored messages.
func (p *LineageRelay) fresh(all []encoded) []encoded {
	i := slices.IndexFunc(all, func(m encoded) bool { return !p.at.covers(m.last()) })
	if i < 0 {
		return nil
	}
	return all[i:]
}

// batchOf returns how many messages fit into a batch.
func batchOf(all []encoded) int {
	room := batchBytes
	for i := range all {
		if room -= len(all[i].data); i > 0 && (room < 0 || i == batchMost) {
			return i
		}
	}
	return len(all)
}

// store publishes messages until LINEAGE holds them, and returns the last one's position.
// After an attempt that was not answered it checks LINEAGE: later messages must not be
// published before these, and none twice.
func (p *LineageRelay) store(ctx context.Context, some []encoded) (lineagePoint, error) {
	for wait := conn.NewBackoff(); ; {
		if ctx.Err() != nil {
			return p.at, ctx.Err()
		}
		if !p.LeaseValid() {
			return p.at, ErrLeaseExpired // another relay publishes them
		}
		if p.C.conn.Incarnation() != p.life {
			return p.at, errReconnected
		}
		if p.batches.publish == nil {
			some = some[:1]
		}
		last := some[len(some)-1].last()
		// A relay that stops waits for the answer: the next relay begins after the stored
		// messages, and announces none of them.
		at, err := p.send(context.WithoutCancel(ctx), some)
		if err == nil && (p.batches.alone && !p.mute || p.C.conn.Incarnation() != p.life || at <= p.at.At) && !p.stands(ctx, p.at) {
			return p.at, errReconnected // stored by a server that has lost the records before
		}
		if err == nil {
			return lineagePoint{At: at, Seq: last.Seq, K: last.K}, nil
		}
		if ctx.Err() != nil {
			return p.at, ctx.Err() // whether they were stored, the next relay finds out
		}
		p.C.conn.Logger.Warn("lineage was not stored", "stream", p.Stream, "seq", last.Seq, "messages", len(some), "err", err)
		if err := wait.Sleep(ctx); err != nil {
			return p.at, err
		}
		found, err := p.forward(ctx, p.at)
		if err != nil {
			if ctx.Err() != nil {
				return p.at, ctx.Err()
			}
			continue
		}
		p.at = found
		if some = p.fresh(some); len(some) == 0 {
			return found, nil
		}
	}
}

// send stores messages in order, and returns the sequence of the last one. An error
// leaves open whether the first ones are stored.
func (p *LineageRelay) send(ctx context.Context, some []encoded) (uint64, error) {
	if len(some) == 1 {
		began := time.Now()
		defer func() { p.took += (time.Since(began) - p.took) / tookShare }()
		return p.C.messages.Publish(ctx, &nats.Msg{Subject: some[0].subject, Data: some[0].data})
	}
	p.took -= p.took / tookShare // the cause of slow single messages may have passed
	batch := make([]*nats.Msg, len(some))
	for i, e := range some {
		batch[i] = &nats.Msg{Subject: e.subject, Data: e.data}
	}
	at, err := p.batches.publish(ctx, batch)
	if e, ok := errors.AsType[*jetstream.APIError](err); ok && e.Code == 400 {
		p.batches.publish = nil // not as this server understands it: one by one
	}
	return at, err
}

// ErrLeaseExpired is returned by a pump whose lease has expired, a moment before its
// context ends.
var ErrLeaseExpired = errors.New("nats/project: the relay's lease of the partition has expired")

package natsbus

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/release"
	"github.com/rathcluster/rath/lineage"
	"github.com/rathcluster/rath/messages"
)

const (
	headerBatchID     = "Nats-Batch-Id"
	headerBatchSeq    = "Nats-Batch-Sequence"
	headerBatchCommit = "Nats-Batch-Commit"

	// batchMost and batchBytes bound the records of one batch.
	batchMost  = 256
	batchBytes = 512 << 10
)

// batches reports whether LINEAGE takes several records at once, all or none
// of them. Where every message costs a round among the replicas and a sync,
// one by one they would come slower than commits.
func (p *lineageRelay) batches(ctx context.Context) (bool, error) {
	return patiently(ctx, func(ctx context.Context) (bool, error) {
		s, err := api(ctx, p.c, apiStreamInfo+StreamLineage, func(ctx context.Context) (jetstream.Stream, error) {
			return p.c.js.Stream(ctx, StreamLineage)
		})
		if err != nil {
			return false, fmt.Errorf("natsbus: look at stream %s: %w", StreamLineage, streamError(err))
		}
		return s.CachedInfo().Config.AllowAtomicPublish, nil
	})
}

// encoded is a record on its way.
type encoded struct {
	*lineage.Record
	data []byte
}

// publish stores records in order, those that are not stored yet, and tells
// those who watch their trees and runs.
func (p *lineageRelay) publish(ctx context.Context, records []lineage.Record) error {
	all := make([]encoded, 0, len(records))
	for i := range records {
		r := &records[i]
		data, err := r.Encode()
		if err != nil {
			p.c.o.Logger.Error("a lineage record does not encode", "stream", p.stream, "seq", r.Seq, "err", err)
			continue
		}
		all = append(all, encoded{r, release.Extend(data)})
	}
	for {
		all = p.fresh(all)
		if len(all) == 0 {
			return nil
		}
		some := all[:1]
		if p.atomic {
			some = all[:batchOf(all)]
		}
		at, err := p.store(ctx, some)
		if err != nil {
			return err
		}
		p.at = at
		p.pace.changed()
		for _, r := range some {
			if !at.covers(r.Record) {
				break
			}
			// Live only: a client that was not there asks for what LINEAGE holds.
			_ = p.c.nc.Publish(r.TailSubject(), r.data)
			if r.Run != "" {
				_ = p.c.nc.Publish(messages.RunSubject(r.Tenant, r.Run, messages.OnEvent), r.data)
			}
		}
	}
}

// fresh returns the records after those that are stored.
func (p *lineageRelay) fresh(all []encoded) []encoded {
	i := slices.IndexFunc(all, func(r encoded) bool { return !p.at.covers(r.Record) })
	if i < 0 {
		return nil
	}
	return all[i:]
}

// batchOf returns how many records fit into a batch.
func batchOf(all []encoded) int {
	room := batchBytes
	for i := range all {
		if room -= len(all[i].data); i > 0 && (room < 0 || i == batchMost) {
			return i
		}
	}
	return len(all)
}

// store publishes records until LINEAGE holds them, and returns what it ends
// with. After an attempt that was not answered it looks whether it does: what
// follows must not be published before, and nothing twice.
func (p *lineageRelay) store(ctx context.Context, some []encoded) (lineagePoint, error) {
	for wait := newBackoff(); ; {
		if ctx.Err() != nil {
			return p.at, ctx.Err()
		}
		if !p.onDuty() {
			return p.at, errOffDuty // another relay publishes them
		}
		if !p.atomic {
			some = some[:1]
		}
		last := some[len(some)-1]
		// Who stops waits for the answer: the next relay begins after what is
		// stored, and tells nobody of it.
		at, err := p.send(context.WithoutCancel(ctx), some)
		if err == nil {
			return lineagePoint{At: at, Seq: last.Seq, K: last.K}, nil
		}
		if ctx.Err() != nil {
			return p.at, ctx.Err() // whether they were stored, the next relay finds out
		}
		p.c.o.Logger.Warn("lineage records were not stored", "stream", p.stream, "seq", last.Seq, "records", len(some), "err", err)
		if err := wait.sleep(ctx); err != nil {
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

// send stores records: all of them or, for all that is known, none. It returns
// the sequence of the last one.
func (p *lineageRelay) send(ctx context.Context, some []encoded) (uint64, error) {
	if len(some) == 1 {
		return p.c.publish(ctx, &nats.Msg{Subject: some[0].Subject(), Data: some[0].data})
	}
	id := rand.Text()
	for i, r := range some {
		m := &nats.Msg{Subject: r.Subject(), Data: r.data, Header: nats.Header{
			headerBatchID: {id}, headerBatchSeq: {strconv.Itoa(i + 1)},
		}}
		if i < len(some)-1 {
			if err := p.c.nc.PublishMsg(m); err != nil {
				return 0, err
			}
			continue
		}
		m.Header.Set(headerBatchCommit, "1")
		at, err := p.c.publish(ctx, m)
		if e, ok := errors.AsType[*jetstream.APIError](err); ok && e.Code == 400 {
			p.atomic = false // not as this server understands it: one by one
		}
		return at, err
	}
	return 0, nil
}

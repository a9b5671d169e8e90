package project

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/messages"
)

// entry is a message of the partition in LINEAGE.
type entry struct {
	at      uint64 // its sequence
	seq     uint64 // of the commit
	first   int    // event of the first record
	last    int    // event of the last one
	records int
}

// repair finds the first commit whose records LINEAGE lacks although this relay stored them
// or LINEAGE has records of later commits, and publishes the lineage of the partition again
// from there. Then it removes the messages that it replaced. The order of records in
// LINEAGE stays the order of the commits. The records of purged commits cannot be derived:
// they are copied in their place, so that a purged tree is listed as before. No other relay
// of the partition may run. A repair that is cut off leaves a gap, which the next one
// finds.
func (p *LineageRelay) repair(ctx context.Context) (did messages.Repaired, err error) {
	end, from, have, err := p.entries(ctx)
	if err != nil {
		return did, err
	}
	r := repairing{p: p, have: have, until: p.at.Seq, chain: eventlog.NewChain(p.C.logs, p.Generation, p.Partition)}
	r.chain.Copies = eventlog.FreshCopies
	defer r.chain.Rest.Stop()
	last, err := p.C.messages.LastSequence(ctx, p.Stream)
	if err != nil {
		return did, err
	}
	p.mute = true
	defer func() { p.mute = false }()
	for m, err := range p.C.messages.UpTo(ctx, p.Stream, p.prefix()+">", max(from, 1)-1, last) {
		if err != nil {
			return r.did, err
		}
		if err := r.commit(ctx, m, end); err != nil {
			return r.did, err
		}
	}
	if r.did.From == 0 {
		return r.did, nil
	}
	if err := r.copy(ctx, last+1); err != nil {
		return r.did, err
	}
	return r.did, r.remove(ctx)
}

// entries returns the end of LINEAGE, the messages of the partition up to there, and the
// first commit that must have lineage: a full LINEAGE drops its oldest messages.
func (p *LineageRelay) entries(ctx context.Context) (end, from uint64, have []entry, err error) {
	info, err := conn.Retry(ctx, func(ctx context.Context) (*jetstream.StreamInfo, error) {
		return p.C.messages.StreamInfo(ctx, streams.StreamLineage)
	})
	if err != nil {
		return 0, 0, nil, fmt.Errorf("nats/project: look at stream %s: %w", streams.StreamLineage, conn.StreamError(err))
	}
	end = info.State.LastSeq
	for m, err := range p.C.messages.UpTo(ctx, streams.StreamLineage, streams.PrefixLineage+">", 0, end) {
		if err != nil {
			return 0, 0, nil, fmt.Errorf("nats/project: lineage of %s: %w", p.Stream, err)
		}
		at, mine := p.point(m)
		records, err := lineage.DecodeStored(m.Data)
		if mine && err == nil {
			have = append(have, entry{at.At, at.Seq, records[0].K, at.K, len(records)})
		}
	}
	if full := info.State.Bytes > uint64(max(info.Config.MaxBytes, 0))/2; info.State.FirstSeq > 1 && full {
		from = p.at.Seq + 1
		if len(have) > 0 {
			from = have[0].seq
		}
	}
	return end, from, have, nil
}

// repairing is a repair in progress.
type repairing struct {
	p     *LineageRelay
	chain *eventlog.Chain
	have  []entry
	next  int    // of have: earlier ones are in their place
	until uint64 // the commit up to which the relay stored all records

	did  messages.Repaired
	old  []entry // to be replaced
	gone []entry // those of old that may be of purged commits, in order
}

// commit checks the next message of the event stream.
func (r *repairing) commit(ctx context.Context, m conn.Message, end uint64) error {
	p := r.p
	defer func() {
		clear(p.records)
		p.records = p.records[:0]
	}()
	records, err := p.derive(ctx, r.chain, m)
	if err != nil || len(records) == 0 {
		return err
	}
	if r.did.From == 0 && r.stored(m.Seq, len(records)) {
		return nil
	}
	if r.did.From == 0 {
		r.begin(m.Seq, end)
	}
	if err := r.copy(ctx, m.Seq); err != nil {
		return err
	}
	for len(r.gone) > 0 && r.gone[0].seq == m.Seq {
		r.gone = r.gone[1:]
	}
	r.did.Published += (len(records) + lineage.MaxStored - 1) / lineage.MaxStored
	return p.publish(ctx, [][]messages.Record{records})
}

// stored reports whether LINEAGE has all records of a commit in their place, or the relay
// has stored neither them nor any later ones.
func (r *repairing) stored(seq uint64, records int) bool {
	for r.next < len(r.have) && r.have[r.next].seq < seq {
		r.next++ // of a commit that was purged
	}
	n := r.next
	for ; n < len(r.have) && r.have[n].seq == seq; n++ {
		records -= r.have[n].records
	}
	if records > 0 && (seq <= r.until || r.next < len(r.have)) {
		return false
	}
	r.next = n
	return true
}

// begin has all that follows published again.
func (r *repairing) begin(seq, end uint64) {
	r.did.From = seq
	r.old = r.have[r.next:]
	r.gone = slices.SortedFunc(slices.Values(r.old), func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(a.first, b.first), cmp.Compare(a.at, b.at))
	})
	r.p.at = lineagePoint{At: end}
	if r.next > 0 {
		r.p.at.Seq, r.p.at.K = r.have[r.next-1].seq, r.have[r.next-1].last
	}
}

// copy publishes again the stored records of purged commits before a sequence.
func (r *repairing) copy(ctx context.Context, before uint64) error {
	for len(r.gone) > 0 && r.gone[0].seq < before {
		at := r.gone[0].at
		r.gone = r.gone[1:]
		m, err := r.p.C.messages.LeaderAt(ctx, streams.StreamLineage, at)
		if errors.Is(err, conn.ErrNoMessage) {
			continue // LINEAGE has dropped it meanwhile
		}
		if err != nil {
			return fmt.Errorf("nats/project: lineage of %s: %w", r.p.Stream, err)
		}
		records, err := lineage.DecodeStored(m.Data)
		if err != nil {
			return fmt.Errorf("nats/project: lineage of %s, message %d: %w", r.p.Stream, at, err)
		}
		r.did.Published++
		if err := r.p.publish(ctx, [][]messages.Record{records}); err != nil {
			return err
		}
	}
	return nil
}

// remove removes the messages that were published again.
func (r *repairing) remove(ctx context.Context) error {
	for _, e := range slices.Backward(r.old) {
		removed, err := r.p.C.messages.RemoveMessage(ctx, streams.StreamLineage, e.at)
		if err != nil {
			return fmt.Errorf("nats/project: lineage of %s: %w", r.p.Stream, err)
		}
		if removed {
			r.did.Removed++
		}
	}
	return nil
}

// repairFor bounds a repair: a partition of a million commits takes some minutes.
const repairFor = 15 * time.Minute

// repairAnswer is the answer to a request for a repair.
type repairAnswer struct {
	messages.Repaired
	Error string `json:"error,omitempty"`
}

func answerOf(did messages.Repaired, err error) repairAnswer {
	a := repairAnswer{Repaired: did}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

// repaired repairs for a request, and for the requests that arrived meanwhile.
func (p *LineageRelay) repaired(ctx context.Context, answer chan<- repairAnswer) {
	did, err := p.repair(ctx)
	if err == nil {
		p.C.setGap(p.Stream, false)
	}
	a := answerOf(did, err)
	for {
		answer <- a // which has room
		select {
		case answer = <-p.asks:
		default:
			return
		}
	}
}

// repairSubject is the subject on which the relay of an event stream receives requests to
// repair its lineage.
func repairSubject(stream string) string { return messages.NodePrefix + "lineage." + stream }

// serveRepair answers while the relay runs.
func (p *LineageRelay) serveRepair(ctx context.Context) (*conn.Service, error) {
	s := p.C.conn.NewService(ctx)
	s.Limit = repairFor
	sub, err := p.C.conn.NC.Subscribe(repairSubject(p.Stream), func(m *nats.Msg) {
		s.Go(conn.RequestOf(m), func(ctx context.Context) {
			answer := make(chan repairAnswer, 1)
			a := repairAnswer{Error: "the relay has ended; ask again"}
			select {
			case p.asks <- answer:
				select {
				case a = <-answer:
				case <-ctx.Done():
				}
			case <-ctx.Done():
			}
			if data, err := json.Marshal(a); err == nil {
				_ = m.Respond(data) // fails with the connection
			}
		}, func(error) {}) // the client repeats the request
	})
	if err != nil {
		return nil, fmt.Errorf("nats/project: answer %s: %w", repairSubject(p.Stream), err)
	}
	s.Close = func() error {
		defer s.Cancel()
		return sub.Unsubscribe()
	}
	return s, nil
}

// RepairLineage asks the relay of a partition to find lineage that is missing before other
// lineage, and to derive it again, see LineageRelay. It is idempotent.
func (c *Projections) RepairLineage(ctx context.Context, partition uint32) (messages.Repaired, error) {
	stream := streams.EventStream(c.streams.Generation(), partition)
	failed := func(err error) (messages.Repaired, error) {
		return messages.Repaired{}, fmt.Errorf("repair the lineage of %s: %w", stream, err)
	}
	ctx, cancel := context.WithTimeout(ctx, repairFor)
	defer cancel()
	m, err := c.conn.Await(ctx, repairSubject(stream), nil)
	if errors.Is(err, nats.ErrNoResponders) {
		return failed(fmt.Errorf("%w: no node relays it; start one, and repair again", err))
	}
	if err != nil {
		return failed(err)
	}
	var a repairAnswer
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return failed(err)
	}
	if a.Error != "" {
		return failed(errors.New(a.Error))
	}
	return a.Repaired, nil
}

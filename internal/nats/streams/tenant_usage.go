package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TenantUsage is the approximate usage of an event stream by a tenant.
type TenantUsage struct {
	Bytes uint64
	Alone bool // no other tenant holds data there
	Of    Fill // the stream
}

const (
	// usageFresh is the time for which a sample is valid. refusedFresh is the shorter time
	// for a sample that rejects runs, because removals may change it.
	usageFresh, refusedFresh = 30 * time.Second, 2 * time.Second
	// usageGrows is how many bytes may be stored before the next sample.
	usageGrows = 1 << 20
	// maxUsages bounds the cached samples.
	maxUsages = 4096
	// A sample weighs weighEach commits of a tenant at weighAt places of a stream.
	weighAt, weighEach = 16, 4
)

// tenantUsages caches the samples, by stream and tenant. Its lock is held while a sample is
// taken, so that concurrent requests share one.
type tenantUsages struct {
	mu sync.Mutex
	m  map[string]usageSample
}

type usageSample struct {
	TenantUsage
	until  time.Time
	stored int // since then, by Grow
}

// tenantUsage estimates a tenant's share of a stream: the server counts its commits, and
// some of them, from all over the stream, are weighed. That takes as many requests for one
// session as for a hundred thousand.
func (r *capacity) tenantUsage(ctx context.Context, stream string, t session.Tenant, storing int) (TenantUsage, error) {
	r.tenants.mu.Lock()
	defer r.tenants.mu.Unlock()
	id := stream + "." + string(t)
	if have, ok := r.tenants.m[id]; ok && time.Now().Before(have.until) && have.stored+storing < usageGrows {
		have.stored += storing
		r.tenants.m[id] = have
		return have.TenantUsage, nil
	}
	h, err := r.SampleUsage(ctx, stream, t)
	if err != nil {
		return h, err
	}
	if r.tenants.m == nil || len(r.tenants.m) >= maxUsages {
		r.tenants.m = map[string]usageSample{}
	}
	fresh := usageFresh
	if h.Of.refuses(h) {
		fresh = refusedFresh
	}
	r.tenants.m[id] = usageSample{h, time.Now().Add(fresh), storing}
	return h, nil
}

func (r *capacity) SampleUsage(ctx context.Context, stream string, t session.Tenant) (TenantUsage, error) {
	info, err := r.messages.StreamInfo(ctx, stream)
	if err != nil {
		return TenantUsage{}, fmt.Errorf("nats/streams: look at stream %s: %w", stream, conn.StreamError(err))
	}
	state := info.State
	subject := strings.TrimSuffix(info.Config.Subjects[0], ">") + string(t) + ".>"
	count, err := r.Count(ctx, stream, subject)
	if err != nil || count == 0 {
		return TenantUsage{}, err
	}
	h := TenantUsage{Alone: count >= state.Msgs, Of: Fill{state.Bytes, info.Config.MaxBytes}}
	if h.Alone {
		h.Bytes = state.Bytes
		return h, nil
	}
	n, bytes := uint64(0), uint64(0)
	for i := range uint64(weighAt) {
		from := max(state.FirstSeq+(state.LastSeq-state.FirstSeq)/weighAt*i, 1)
		for m, err := range r.messages.DirectBatch(ctx, stream, conn.GetRequest{Seq: from, NextBySubject: subject, Batch: weighEach, MaxBytes: conn.PageBytes}) {
			if err != nil {
				return TenantUsage{}, err
			}
			n, bytes = n+1, bytes+uint64(len(m.Subject)+len(m.Data)+perMessage)
		}
	}
	if n > 0 {
		h.Bytes = min(state.Bytes, uint64(float64(bytes)/float64(n)*float64(count)))
	}
	return h, nil
}

// Count counts the messages of a stream under a subject with wildcards, in the state of any
// replica: each message of a batch read carries the number of those that follow.
func (r *capacity) Count(ctx context.Context, stream, subject string) (uint64, error) {
	body, err := json.Marshal(conn.GetRequest{Seq: 1, NextBySubject: subject, Batch: 1})
	if err != nil {
		return 0, err
	}
	m, err := r.messages.DirectOne(ctx, stream, conn.APIDirectGet+stream, body)
	if errors.Is(err, conn.ErrNoMessage) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	more, err := strconv.ParseUint(m.Header.Get(conn.HeaderPending), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("nats/streams: read stream %s: how many messages follow: %w", stream, err)
	}
	return more + 1, nil
}

// ErrNoRoom is returned for a task that no log holds while a stream that it needs accepts
// no new runs.
var ErrNoRoom = errors.New("no new runs begin")

// Admit returns nil if a new run of a tenant may begin in an event stream. Its error is
// run.ErrBusy and ErrNoRoom if the stream accepts no new run, or none of this tenant, or if
// another stream that every run needs is nearly full.
func (r *capacity) Admit(ctx context.Context, stream string, tenant session.Tenant) error {
	if err := r.admitsDisk(); err != nil {
		return err
	}
	for _, name := range append([]string{stream}, needed...) {
		if f := r.Fill(name); f.Room() != RoomAll {
			return fmt.Errorf("%w: %w: stream %s holds %s; try again later, or %s", run.ErrBusy, ErrNoRoom, name, f, RemedyOf(name))
		}
	}
	f := r.Fill(stream)
	if !f.over(sharesFrom) {
		return nil
	}
	h, err := r.tenantUsage(ctx, stream, tenant, 0)
	if err == nil && f.refuses(h) {
		err = fmt.Errorf("%w: %w: stream %s holds %s, more than half of it of tenant %s; try again later, or %s",
			run.ErrBusy, ErrNoRoom, stream, f, tenant, Remedy)
	}
	return err
}

// Grow returns nil if a tenant may store so many bytes in a stream that keeps its contents.
// Its error is conn.ErrFull if only the disk's reserve is left, or if the stream is more
// than 70 % full and the tenant holds more than half of it beside others. The usage is an
// estimate; the error is nil if the servers do not answer.
func (r *capacity) Grow(ctx context.Context, stream string, t session.Tenant, bytes int) error {
	if d, room := r.DiskRoom(); room >= RoomEnds {
		return fmt.Errorf("%w: the disk of the store has %s; %s", conn.ErrFull, d, RemedyDisk)
	}
	h, err := r.tenantUsage(ctx, stream, t, bytes)
	if err == nil && h.Of.refuses(h) {
		return fmt.Errorf("%w: stream %s holds %s, more than half of it of tenant %s", conn.ErrFull, stream, h.Of, t)
	}
	return nil
}

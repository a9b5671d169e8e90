package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/session"
)

// Holding is about how much of an event stream is a tenant's.
type Holding struct {
	Bytes uint64
	Alone bool // nobody else holds anything there
}

const (
	// holdingFor is how long a holding is believed.
	holdingFor = 30 * time.Second
	// maxHoldings bounds the holdings that are remembered.
	maxHoldings = 4096
	// At so many places of a stream so many commits of a tenant are weighed.
	weighAt, weighEach = 16, 4
)

// holders remembers holdings, by stream and tenant. Who does not know one waits
// for whoever asks just now.
type holders struct {
	mu sync.Mutex
	m  map[string]held
}

type held struct {
	Holding
	until time.Time
}

// holding estimates how much of a stream is a tenant's: the server counts its
// commits, and some of them, all over the stream, are weighed. That costs as many
// requests for one session as for a hundred thousand.
func (c *Conn) holding(ctx context.Context, stream string, t session.Tenant) (Holding, error) {
	c.holders.mu.Lock()
	defer c.holders.mu.Unlock()
	id := stream + "." + string(t)
	if have, ok := c.holders.m[id]; ok && time.Now().Before(have.until) {
		return have.Holding, nil
	}
	h, err := c.weigh(ctx, stream, t)
	if err != nil {
		return h, err
	}
	if c.holders.m == nil || len(c.holders.m) >= maxHoldings {
		c.holders.m = map[string]held{}
	}
	c.holders.m[id] = held{h, time.Now().Add(holdingFor)}
	return h, nil
}

func (c *Conn) weigh(ctx context.Context, stream string, t session.Tenant) (Holding, error) {
	s, err := api(ctx, c, apiStreamInfo+stream, func(ctx context.Context) (jetstream.Stream, error) { return c.js.Stream(ctx, stream) })
	if err != nil {
		return Holding{}, fmt.Errorf("natsbus: look at stream %s: %w", stream, streamError(err))
	}
	state := s.CachedInfo().State
	subject := strings.TrimSuffix(s.CachedInfo().Config.Subjects[0], ">") + string(t) + ".>"
	count, err := c.countCommits(ctx, stream, subject)
	if err != nil || count == 0 {
		return Holding{}, err
	}
	h := Holding{Alone: count >= state.Msgs}
	if h.Alone {
		h.Bytes = state.Bytes
		return h, nil
	}
	n, bytes := uint64(0), uint64(0)
	for i := range uint64(weighAt) {
		from := max(state.FirstSeq+(state.LastSeq-state.FirstSeq)/weighAt*i, 1)
		for m, err := range c.directBatch(ctx, stream, getRequest{Seq: from, NextBySubject: subject, Batch: weighEach, MaxBytes: pageBytes}) {
			if err != nil {
				return Holding{}, err
			}
			n, bytes = n+1, bytes+uint64(len(m.Subject)+len(m.Data)+perMessage)
		}
	}
	if n > 0 {
		h.Bytes = min(state.Bytes, uint64(float64(bytes)/float64(n)*float64(count)))
	}
	return h, nil
}

// countCommits counts the messages of a stream under a subject with wildcards:
// a read in bulk says with each message how many follow.
func (c *Conn) countCommits(ctx context.Context, stream, subject string) (uint64, error) {
	body, err := json.Marshal(getRequest{Seq: 1, NextBySubject: subject, Batch: 1})
	if err != nil {
		return 0, err
	}
	m, err := c.directOne(ctx, stream, apiDirectGet+stream, body)
	if errors.Is(err, errNoMessage) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	more, err := strconv.ParseUint(m.Header.Get(headerPending), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("natsbus: read stream %s: how many messages follow: %w", stream, err)
	}
	return more + 1, nil
}

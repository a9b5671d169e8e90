package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rathcluster/rath/internal/nats/conn"
)

// Level names the failures that an acknowledged write survives. Every record and every
// dossier carries it.
type Level string

const (
	// Fsync writes survive the loss of power of every machine: each server
	// syncs to disk before it acknowledges. It is the default.
	Fsync Level = "fsync"
	// Replicated writes survive the loss of any one machine, not the loss of
	// power of all of them: three servers hold them, in memory or on disk.
	Replicated Level = "replicated"
	// Lazy writes survive only the end of a server's process.
	Lazy Level = "lazy"
)

// ParseLevel reads a level's name, as a flag holds it.
func ParseLevel(s string) (Level, error) {
	switch l := Level(s); l {
	case Fsync, Replicated, Lazy:
		return l, nil
	}
	return "", fmt.Errorf("nats/streams: durability level %q: want %s, %s or %s", s, Fsync, Replicated, Lazy)
}

// ErrDurability is returned when the servers store less safely than the level
// demands, or when that cannot be verified. It is an *DurabilityError.
var ErrDurability = errors.New("nats/streams: durability level not met")

// DurabilityError is the reason a level is rejected. errors.Is(err, ErrDurability) holds.
type DurabilityError struct {
	Level  Level
	Reason string
	Remedy string
	Cause  error // nil when the servers answered
}

// Error names the level, the reason and the remedy.
func (e *DurabilityError) Error() string {
	cause := ""
	if e.Cause != nil {
		cause = ": " + e.Cause.Error()
	}
	return fmt.Sprintf("%v: %s: %s%s; %s", ErrDurability, e.Level, e.Reason, cause, e.Remedy)
}

// Is reports whether target is ErrDurability.
func (e *DurabilityError) Is(target error) bool { return target == ErrDurability }

// Unwrap returns the cause.
func (e *DurabilityError) Unwrap() error { return e.Cause }

// SyncState is one server's sync configuration.
type SyncState struct {
	Server   string
	Always   bool          // synced to disk before each acknowledgement
	Interval time.Duration // between syncs otherwise
}

// A Probe returns the sync configuration of the servers that may hold streams. It omits
// silent servers as long as a majority answers, because it is called when a server has just
// failed, and returns an error otherwise.
type Probe func(ctx context.Context) ([]SyncState, error)

const (
	probeTimeout = 10 * time.Second
	maxVarz      = 4 << 20
)

// gate stores the connection for which the servers were last verified. After a reconnect
// the connection may lead to another server, or to the same one restarted with other
// settings.
type gate struct {
	busy     chan struct{} // holds one token: one probe at a time
	verified atomic.Uint64 // the incarnation then; 0: never
}

func newGate() gate { return gate{busy: make(chan struct{}, 1)} }

// Level is the durability that this connection promises.
func (c *Streams) Level() Level { return c.O.Level }

// Durable verifies that the servers store as the level demands. It asks them once per
// connection: after a reconnect it asks again, before the first write is acknowledged. It
// returns a *DurabilityError otherwise.
func (c *Streams) Durable(ctx context.Context) error {
	if c.O.Client {
		return ErrClientOnly
	}
	n := c.Conn.Incarnation()
	if c.gate.verified.Load() == n {
		return nil
	}
	select {
	case c.gate.busy <- struct{}{}:
		defer func() { <-c.gate.busy }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if c.gate.verified.Load() == n {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := c.O.verify(ctx); err != nil {
		return err
	}
	c.gate.verified.Store(n)
	return nil
}

// ReadyToStore is Durable for a writer: while the servers do not answer, which is usual for
// a moment after one of them has failed, it retries for as long as an append would.
func (c *Streams) ReadyToStore(ctx context.Context) error {
	if c.gate.verified.Load() == c.Conn.Incarnation() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, conn.RetryBudget)
	defer cancel()
	for wait := conn.NewBackoff(); ; {
		err := c.Durable(ctx)
		e, ok := errors.AsType[*DurabilityError](err)
		if !ok || e.Cause == nil {
			return err
		}
		if wait.Sleep(ctx) != nil {
			return err
		}
	}
}

func (o *Options) verify(ctx context.Context) error {
	switch o.Level {
	case Replicated:
		if o.Replicas < 3 {
			return &DurabilityError{
				Level:  o.Level,
				Reason: fmt.Sprintf("streams have %d replica", o.Replicas),
				Remedy: "run three servers and ask for 3 replicas, or name level lazy",
			}
		}
		return nil
	case Lazy:
		return nil
	}
	const lower = "or accept less by naming level replicated (with 3 replicas) or lazy"
	if o.Probe == nil {
		return &DurabilityError{
			Level: o.Level, Reason: "no way to ask the servers whether they sync every write",
			Remedy: "name their monitoring addresses, " + lower,
		}
	}
	states, err := o.Probe(ctx)
	if err == nil && len(states) == 0 {
		err = errors.New("no server answered")
	}
	if err != nil {
		return &DurabilityError{
			Level: o.Level, Reason: "cannot ask the servers whether they sync every write", Cause: err,
			Remedy: "make their monitoring reachable, " + lower,
		}
	}
	var lazy []string
	for _, s := range states {
		if !s.Always {
			lazy = append(lazy, fmt.Sprintf("%s syncs every %v", s.Server, s.Interval))
		}
	}
	if len(lazy) > 0 {
		return &DurabilityError{
			Level: o.Level, Reason: strings.Join(lazy, ", "),
			Remedy: "set jetstream { sync_interval: always } in the configuration of each server, " + lower,
		}
	}
	return nil
}

// MonitorProbe returns a Probe that reads the monitoring addresses of the
// servers, such as "http://nats-0.nats:8222". A majority of them must answer.
func MonitorProbe(addresses ...string) Probe {
	client := &http.Client{Timeout: probeTimeout / 2}
	return func(ctx context.Context) ([]SyncState, error) {
		var (
			wg     sync.WaitGroup
			states = make([]SyncState, len(addresses))
			errs   = make([]error, len(addresses))
		)
		for i, a := range addresses {
			wg.Go(func() { states[i], errs[i] = readVarz(ctx, client, strings.TrimRight(a, "/")+"/varz") })
		}
		wg.Wait()
		answered := states[:0]
		for i, err := range errs {
			if err == nil {
				answered = append(answered, states[i])
			}
		}
		if 2*len(answered) <= len(addresses) {
			return nil, errors.Join(errs...)
		}
		return answered, nil
	}
}

func readVarz(ctx context.Context, client *http.Client, address string) (SyncState, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return SyncState{}, fmt.Errorf("nats/streams: monitoring address: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return SyncState{}, fmt.Errorf("nats/streams: read monitoring: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return SyncState{}, fmt.Errorf("nats/streams: read monitoring: %s answers %s", address, resp.Status)
	}
	var v struct {
		Name      string `json:"server_name"`
		JetStream struct {
			Config *struct {
				SyncAlways   bool          `json:"sync_always"`
				SyncInterval time.Duration `json:"sync_interval"`
			} `json:"config"`
		} `json:"jetstream"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(nil, resp.Body, maxVarz)).Decode(&v); err != nil {
		return SyncState{}, fmt.Errorf("nats/streams: read monitoring: %s: %w", address, err)
	}
	if v.JetStream.Config == nil {
		return SyncState{}, fmt.Errorf("nats/streams: read monitoring: %s runs without JetStream", address)
	}
	return SyncState{v.Name, v.JetStream.Config.SyncAlways, v.JetStream.Config.SyncInterval}, nil
}

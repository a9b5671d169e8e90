package natsbus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// MaxPartitions bounds the event streams of a generation.
	MaxPartitions = 64
	// DefaultStoreBytes is what the streams share when nothing else is said.
	DefaultStoreBytes = 8 << 30
	// MinStoreBytes is the least that Provision shares out: below it a stream
	// would not hold a few of its largest messages.
	MinStoreBytes = 256 << 20
)

// The streams and buckets, apart from the event streams, see EventStream.
const (
	StreamSnap     = "SNAP"
	StreamTasks    = "TASKS"
	StreamWork     = "WORK"
	StreamLineage  = "LINEAGE"
	StreamResult   = "RESULT"
	StreamDLQ      = "DLQ"
	StreamBlob     = "BLOB"
	BucketNode     = "NODE"
	BucketRegistry = "REGISTRY"
	BucketAlias    = "ALIAS"
)

// The first tokens of the subjects that streams capture.
const (
	prefixEvent   = "rath.ev."
	prefixSnap    = "rath.snap."
	prefixPage    = "rath.page."
	prefixTask    = "rath.task."
	prefixWork    = "rath.work."
	prefixLineage = "rath.lineage."
	prefixTail    = "rath.tail."
	prefixDLQ     = "rath.dlq."
	prefixBlob    = "rath.blob."
	subjectResult = "rath.run.*.*.result"
)

const (
	// NodeTTL is how long a node's entry outlives its last renewal.
	NodeTTL = 30 * time.Second
	// maxQueued bounds the tasks that wait on one subject, which is one
	// workflow of one tenant: more are answered as busy. It is what nodes may
	// have to look through for the tasks of other tenants.
	maxQueued = 1000
	// minDuplicates is the shortest window that the server takes: nothing here
	// relies on its duplicate detection, and each id in it costs memory.
	minDuplicates = 100 * time.Millisecond
)

// EventStream is the name of the stream that holds a partition's events.
func EventStream(generation, partition uint32) string {
	return "EV_" + strconv.FormatUint(uint64(generation), 10) + "_" + strconv.FormatUint(uint64(partition), 10)
}

// kind is what a stream is for; it decides how it stores.
type kind uint8

const (
	truth      kind = iota // synced, and never lost
	projection             // rebuilt from the truth if lost: one replica may store later
	queue                  // rebuilt from the truth: memory when replicated
	volatile               // renewed all the time: memory
)

// layout is the table of streams. A full stream of truths or of tasks refuses
// instead of forgetting; a cache or a projection forgets its oldest. share is the part of StoreBytes in
// thousandths, for all event streams together in their row.
func layout(o *Options) []jetstream.StreamConfig {
	var out []jetstream.StreamConfig
	add := func(k kind, share int64, cfg jetstream.StreamConfig) {
		out = append(out, o.complete(k, share, cfg))
	}
	const events = 400
	for p := range o.Partitions {
		add(truth, events/int64(o.Partitions), jetstream.StreamConfig{
			Name:        EventStream(o.Generation, p),
			Description: "commits of sessions: the truth",
			Subjects:    []string{fmt.Sprintf("%s%d.%d.>", prefixEvent, o.Generation, p)},
			// Single messages are never removed. Whole sessions are purged by
			// the operator when they are archived, which is denied to nodes by
			// their permissions and not here, where it could not be undone.
			DenyDelete:  true,
			Discard:     jetstream.DiscardNew,
			AllowDirect: true,
		})
	}
	add(projection, 150, jetstream.StreamConfig{
		Name:              StreamSnap,
		Description:       "snapshots of sessions and their pages: a cache",
		Subjects:          []string{prefixSnap + ">", prefixPage + ">"},
		MaxMsgsPerSubject: 1,
		Discard:           jetstream.DiscardOld,
		AllowDirect:       true,
	})
	add(truth, 300, jetstream.StreamConfig{
		Name:              StreamBlob,
		Description:       "bytes by their digest",
		Subjects:          []string{prefixBlob + ">"},
		MaxMsgsPerSubject: 1,
		Discard:           jetstream.DiscardNew,
		AllowDirect:       true,
	})
	add(truth, 40, jetstream.StreamConfig{
		Name:                 StreamTasks,
		Description:          "submitted tasks that no log holds yet",
		Subjects:             []string{prefixTask + ">"},
		Retention:            jetstream.WorkQueuePolicy,
		MaxMsgsPerSubject:    maxQueued,
		Discard:              jetstream.DiscardNew,
		DiscardNewPerSubject: true,
	})
	add(queue, 20, jetstream.StreamConfig{
		Name:        StreamWork,
		Description: "work derived from logs: offered again if lost",
		Subjects:    []string{prefixWork + ">"},
		Retention:   jetstream.WorkQueuePolicy,
		Discard:     jetstream.DiscardNew,
	})
	add(projection, 40, jetstream.StreamConfig{
		Name:        StreamLineage,
		Description: "what happened, for people and auditors",
		Subjects:    []string{prefixLineage + ">"},
		Discard:     jetstream.DiscardOld,
		AllowDirect: true,
		RePublish:   &jetstream.RePublish{Source: prefixLineage + ">", Destination: prefixTail + ">"},
		// Replicas agree on a batch at once. On one replica, which stores this
		// stream later, there are none.
		AllowAtomicPublish: o.Replicas > 1,
	})
	add(truth, 20, jetstream.StreamConfig{
		Name:                 StreamResult,
		Description:          "results of runs, one each",
		Subjects:             []string{subjectResult},
		MaxAge:               o.KeepResults,
		MaxMsgsPerSubject:    1,
		Discard:              jetstream.DiscardNew,
		DiscardNewPerSubject: true,
		AllowDirect:          true,
	})
	add(truth, 10, jetstream.StreamConfig{
		Name:        StreamDLQ,
		Description: "tasks that were refused, with the reason",
		Subjects:    []string{prefixDLQ + ">"},
		Discard:     jetstream.DiscardOld,
		AllowDirect: true,
	})
	add(volatile, 1, bucket(BucketNode, "nodes that live", NodeTTL))
	add(truth, 4, bucket(BucketRegistry, "workflows and tools on offer", 0))
	add(truth, 15, bucket(BucketAlias, "names that users chose: created once", 0))
	return out
}

// bucket is a stream in the shape that key-value clients expect.
func bucket(name, description string, ttl time.Duration) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              "KV_" + name,
		Description:       description,
		Subjects:          []string{"$KV." + name + ".>"},
		MaxMsgsPerSubject: 1,
		MaxAge:            ttl,
		Discard:           jetstream.DiscardNew,
		AllowRollup:       true,
		DenyDelete:        true,
		AllowDirect:       true,
	}
}

// complete fills in what follows from what a stream is for.
func (o *Options) complete(k kind, share int64, cfg jetstream.StreamConfig) jetstream.StreamConfig {
	cfg.Replicas = o.Replicas
	cfg.Duplicates = minDuplicates
	cfg.MaxBytes = o.StoreBytes / 1000 * share
	cfg.MaxMsgs, cfg.MaxConsumers, cfg.MaxMsgSize = -1, -1, -1
	if cfg.MaxMsgsPerSubject == 0 {
		cfg.MaxMsgsPerSubject = -1
	}
	switch {
	case k == volatile, k == queue && o.Replicas > 1:
		cfg.Storage = jetstream.MemoryStorage
		cfg.MaxBytes = min(cfg.MaxBytes, 64<<20)
	case k != truth && o.Replicas == 1:
		cfg.PersistMode = jetstream.AsyncPersistMode
	}
	return cfg
}

// Mismatch is one setting of a stream that is not as this release needs it.
type Mismatch struct {
	Stream string
	Field  string
	Want   string
	Got    string
	Remedy string
}

// MismatchError lists what Provision or Verify found. Nothing was altered.
type MismatchError struct{ Mismatches []Mismatch }

// Error has one line per mismatch.
func (e *MismatchError) Error() string {
	lines := make([]string, 0, 1+len(e.Mismatches))
	lines = append(lines, "natsbus: streams are not set up as this release needs them")
	for _, m := range e.Mismatches {
		lines = append(lines, fmt.Sprintf("stream %s: %s is %s, want %s; %s", m.Stream, m.Field, m.Got, m.Want, m.Remedy))
	}
	return strings.Join(lines, "\n\t")
}

// Provision creates the streams that are missing, checks those that exist and
// alters none: it returns a *MismatchError for settings that differ. Nodes may
// call it at the same time, and again.
func (c *Conn) Provision(ctx context.Context) error { return c.provision(ctx, true) }

// Verify is Provision for a connection that may not create streams: a missing
// one is a mismatch.
func (c *Conn) Verify(ctx context.Context) error { return c.provision(ctx, false) }

func (c *Conn) provision(ctx context.Context, create bool) error {
	if c.o.Client {
		return ErrClientOnly
	}
	if c.o.StoreBytes < MinStoreBytes {
		return fmt.Errorf("natsbus: %d bytes for all streams: at least %d are needed", c.o.StoreBytes, MinStoreBytes)
	}
	var found []Mismatch
	for _, want := range layout(&c.o) {
		got, err := c.ensure(ctx, want, create)
		if err != nil {
			return err
		}
		found = append(found, compare(want, got)...)
	}
	if len(found) > 0 {
		return &MismatchError{found}
	}
	return nil
}

// ensure returns the configuration of a stream, creating it if it is missing;
// nil when it is missing and may not be created.
func (c *Conn) ensure(ctx context.Context, want jetstream.StreamConfig, create bool) (*jetstream.StreamConfig, error) {
	s, err := c.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if !create {
			return nil, nil
		}
		s, err = c.js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			// Another node was faster, with other settings.
			s, err = c.js.Stream(ctx, want.Name)
		}
	}
	if err != nil {
		return nil, c.o.provisionError(want, err)
	}
	return &s.CachedInfo().Config, nil
}

// The codes of the server that mean that a stream asks for more than is left.
const (
	codeInsufficient    = 10023
	codeMemoryExceeded  = 10028
	codeStorageExceeded = 10047
	codeNoPeers         = 10005
	codeReplicasSingle  = 10074
)

func (o *Options) provisionError(want jetstream.StreamConfig, err error) error {
	remedy := ""
	switch apiCode(err) {
	case codeInsufficient, codeMemoryExceeded, codeStorageExceeded:
		return fmt.Errorf("natsbus: no space for stream %s: %w; it asks for %d bytes of the %d that all streams share: "+
			"free some space, raise the servers' limit or use another disk: %w", want.Name, err, want.MaxBytes, o.StoreBytes, ErrFull)
	case codeNoPeers, codeReplicasSingle:
		remedy = fmt.Sprintf("; %d replicas need as many servers in one cluster", want.Replicas)
	default:
		switch {
		case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
			remedy = "; switch JetStream on in the servers and for this account"
		case errors.Is(err, context.DeadlineExceeded):
			remedy = "; the servers did not answer: check that JetStream is on and that these credentials may use its API"
		}
	}
	return fmt.Errorf("natsbus: stream %s: %w%s", want.Name, err, remedy)
}

// apiCode is the server's code for a refused request, 0 for other errors.
func apiCode(err error) int {
	if e, ok := errors.AsType[jetstream.JetStreamError](err); ok && e.APIError() != nil {
		return int(e.APIError().ErrorCode)
	}
	return 0
}

const (
	editable = "as operator: nats stream edit "
	fixed    = "it cannot be changed: move the data to a new generation, or as operator remove the stream if it holds nothing of value"
)

// fields are the settings that are compared, and whether an operator can
// change them in place.
var fields = []struct {
	name     string
	editable bool
	value    func(*jetstream.StreamConfig) string
}{
	{"subjects", true, func(c *jetstream.StreamConfig) string {
		return strings.Join(slices.Sorted(slices.Values(c.Subjects)), " ")
	}},
	{"storage", false, func(c *jetstream.StreamConfig) string { return c.Storage.String() }},
	{"persist mode", false, func(c *jetstream.StreamConfig) string { return c.PersistMode.String() }},
	{"retention", false, func(c *jetstream.StreamConfig) string { return c.Retention.String() }},
	{"replicas", true, func(c *jetstream.StreamConfig) string { return strconv.Itoa(c.Replicas) }},
	{"discard", true, func(c *jetstream.StreamConfig) string { return c.Discard.String() }},
	{"discard new per subject", true, func(c *jetstream.StreamConfig) string { return strconv.FormatBool(c.DiscardNewPerSubject) }},
	{"max bytes", true, func(c *jetstream.StreamConfig) string {
		// How much is the operator's choice; that there is a bound is not.
		if c.MaxBytes > 0 {
			return "bounded"
		}
		return "unbounded"
	}},
	{"max messages", true, func(c *jetstream.StreamConfig) string { return limit(c.MaxMsgs) }},
	{"max messages per subject", true, func(c *jetstream.StreamConfig) string {
		if c.Name == StreamTasks && c.MaxMsgsPerSubject > 0 {
			return "bounded" // how many may wait is the operator's choice
		}
		return limit(c.MaxMsgsPerSubject)
	}},
	{"max message size", true, func(c *jetstream.StreamConfig) string { return limit(int64(c.MaxMsgSize)) }},
	{"max age", true, func(c *jetstream.StreamConfig) string {
		if c.Name == StreamResult {
			return "" // how long results are kept is the operator's choice
		}
		return c.MaxAge.String()
	}},
	{"duplicate window", true, func(c *jetstream.StreamConfig) string { return c.Duplicates.String() }},
	{"no ack", true, func(c *jetstream.StreamConfig) string { return strconv.FormatBool(c.NoAck) }},
	{"sealed", false, func(c *jetstream.StreamConfig) string { return strconv.FormatBool(c.Sealed) }},
	{"deny delete", false, func(c *jetstream.StreamConfig) string { return strconv.FormatBool(c.DenyDelete) }},
	{"deny purge", false, func(c *jetstream.StreamConfig) string { return strconv.FormatBool(c.DenyPurge) }},
	{"rollup allowed", true, func(c *jetstream.StreamConfig) string { return strconv.FormatBool(c.AllowRollup) }},
	{"direct get", true, func(c *jetstream.StreamConfig) string { return strconv.FormatBool(c.AllowDirect) }},
	{"message TTL allowed", false, func(c *jetstream.StreamConfig) string { return strconv.FormatBool(c.AllowMsgTTL) }},
	{"republish", true, func(c *jetstream.StreamConfig) string {
		if c.RePublish == nil {
			return "none"
		}
		return fmt.Sprintf("%s to %s, headers only %v", c.RePublish.Source, c.RePublish.Destination, c.RePublish.HeadersOnly)
	}},
	{"mirror, sources or transform", false, func(c *jetstream.StreamConfig) string {
		return strconv.FormatBool(c.Mirror != nil || len(c.Sources) > 0 || c.SubjectTransform != nil)
	}},
}

func limit(n int64) string {
	if n <= 0 {
		return "unlimited"
	}
	return strconv.FormatInt(n, 10)
}

func compare(want jetstream.StreamConfig, got *jetstream.StreamConfig) []Mismatch {
	if got == nil {
		return []Mismatch{{want.Name, "stream", "present", "missing", "run Provision with credentials that may create streams"}}
	}
	var out []Mismatch
	for _, f := range fields {
		w, g := f.value(&want), f.value(got)
		if w == g {
			continue
		}
		remedy := fixed
		if f.editable {
			remedy = editable + want.Name
		}
		out = append(out, Mismatch{want.Name, f.name, w, g, remedy})
	}
	return out
}

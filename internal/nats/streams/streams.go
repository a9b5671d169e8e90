package streams

import (
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/messages"
)

const (
	// maxPartitions bounds the event streams of a generation.
	maxPartitions = 64
	// DefaultStoreBytes is what the streams share when nothing else is said.
	DefaultStoreBytes = 8 << 30
	// MinStoreBytes is the least that Provision shares out: below it a stream
	// would not hold a few of its largest messages.
	MinStoreBytes = 256 << 20
)

// The streams and buckets, apart from the event streams, see EventStream.
const (
	StreamSnap     = messages.StreamSnap
	StreamTasks    = messages.StreamTasks
	StreamLineage  = messages.StreamLineage
	StreamResult   = messages.StreamResult
	StreamDLQ      = messages.StreamDLQ
	StreamBlob     = messages.StreamBlob
	StreamMemory   = messages.StreamMemory
	BucketNode     = messages.BucketNode
	BucketRegistry = messages.BucketRegistry
	BucketAlias    = messages.BucketAlias
)

// The first tokens of the subjects that streams capture.
const (
	PrefixEvent   = "rath.ev."
	PrefixSnap    = "rath.snap."
	PrefixPage    = "rath.page."
	PrefixTask    = "rath.task."
	PrefixLineage = "rath.lineage."
	PrefixDLQ     = "rath.dlq."
	PrefixBlob    = "rath.blob."
	PrefixMemory  = "rath.memory."
	subjectResult = "rath.run.*.*.result"
	subjectTasks  = PrefixTask + "*.*.*" // tenant, user, workflow
)

const (
	// NodeTTL is how long a node's entry outlives its last renewal.
	NodeTTL = 30 * time.Second
	// maxQueued bounds the tasks that wait on one subject, which is one
	// workflow of one user: more are answered as busy. A tenant has many users, and nodes
	// may have to look through what all of them have waiting for the tasks of other tenants.
	maxQueued = 1000
	// minQueued is how many may wait there for a store of any size.
	minQueued = 64
	// fullWorkflows is for how many workflows of one user the stream of tasks
	// has room besides that of others, each with as many tasks waiting as may
	// and these as large as they may be. A server bounds subjects and whole
	// streams, and nothing in between: with more such workflows or users a tenant
	// could fill the stream.
	fullWorkflows = 2
	// minDuplicates is the shortest window that the server takes: nothing here
	// relies on its duplicate detection, and each id in it costs memory.
	minDuplicates = 100 * time.Millisecond
)

// EventStream is the name of the stream that holds a partition's events.
func EventStream(generation, partition uint32) string {
	return messages.EventStream(generation, partition)
}

// metaPartitions is where an event stream keeps the number of partitions of its
// generation, so that no process has to be told, or can be told wrongly.
const metaPartitions = "rath-partitions"

// kind is what a stream is for; it decides how it stores.
type kind uint8

const (
	truth      kind = iota // synced, and never lost
	projection             // rebuilt from the truth if lost: one replica may store later
	volatile               // renewed all the time: memory
)

// ordersBatches reports whether a server of this version takes batches in order. One that
// does not refuses a stream that asks for them.
func ordersBatches(version string) bool {
	var major, minor int
	_, err := fmt.Sscanf(version, "%d.%d.", &major, &minor)
	return err == nil && (major > 2 || major == 2 && minor >= 14)
}

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
			Subjects:    []string{fmt.Sprintf("%s%d.%d.>", PrefixEvent, o.Generation, p)},
			// Single messages are never removed. Whole sessions are purged by
			// the operator when they are archived, which is denied to nodes by
			// their permissions and not here, where it could not be undone.
			DenyDelete:  true,
			Discard:     jetstream.DiscardNew,
			AllowDirect: true,
			Metadata:    map[string]string{metaPartitions: strconv.FormatUint(uint64(o.Partitions), 10)},
		})
	}
	add(projection, 75, jetstream.StreamConfig{
		Name:              StreamSnap,
		Description:       "snapshots of sessions and their pages: a cache",
		Subjects:          []string{PrefixSnap + ">", PrefixPage + ">"},
		MaxMsgsPerSubject: 1,
		Discard:           jetstream.DiscardOld,
		AllowDirect:       true,
	})
	add(truth, 300, jetstream.StreamConfig{
		Name:              StreamBlob,
		Description:       "bytes by their digest",
		Subjects:          []string{PrefixBlob + ">"},
		MaxMsgsPerSubject: 1,
		Discard:           jetstream.DiscardNew,
		AllowDirect:       true,
	})
	add(truth, 20, jetstream.StreamConfig{
		Name:              StreamMemory,
		Description:       "notes of agents, the last of each",
		Subjects:          []string{PrefixMemory + ">"},
		MaxMsgsPerSubject: 1,
		Discard:           jetstream.DiscardNew,
		DenyDelete:        true,
		AllowDirect:       true,
		// What is larger than a message is several of them, stored at once.
		AllowAtomicPublish: true,
	})
	const tasks = 115
	add(truth, tasks, jetstream.StreamConfig{
		Name:                 StreamTasks,
		Description:          "submitted tasks that no log holds yet",
		Subjects:             []string{subjectTasks},
		Retention:            jetstream.WorkQueuePolicy,
		MaxMsgsPerSubject:    queuedWithin(o.StoreBytes / 1000 * tasks),
		MaxMsgSize:           messages.MaxTask,
		Discard:              jetstream.DiscardNew,
		DiscardNewPerSubject: true,
	})
	add(projection, 40, jetstream.StreamConfig{
		Name:        StreamLineage,
		Description: "what happened, for people and auditors",
		Subjects:    []string{PrefixLineage + ">"},
		Discard:     jetstream.DiscardOld,
		AllowDirect: true,
		// Replicas agree on a batch at once. On one replica, which stores this
		// stream later, the messages of one follow each other.
		AllowAtomicPublish: o.Replicas > 1,
		AllowBatchPublish:  o.Replicas == 1,
	})
	add(truth, 20, jetstream.StreamConfig{
		Name:              StreamResult,
		Description:       "results of runs, one each",
		Subjects:          []string{subjectResult},
		MaxAge:            o.KeepResults,
		MaxMsgsPerSubject: 1,
		Discard:           jetstream.DiscardNew,
		AllowDirect:       true,
	})
	add(truth, 10, jetstream.StreamConfig{
		Name:        StreamDLQ,
		Description: "tasks that were refused, with the reason",
		Subjects:    []string{PrefixDLQ + ">"},
		Discard:     jetstream.DiscardOld,
		AllowDirect: true,
	})
	add(volatile, 1, bucket(BucketNode, "nodes that live", NodeTTL))
	add(truth, 4, bucket(BucketRegistry, "workflows and tools on offer", 0))
	add(truth, 15, bucket(BucketAlias, "names that users chose: created once", 0))
	return out
}

// queuedWithin returns how many tasks may wait on one subject of a stream of so
// many bytes.
func queuedWithin(bytes int64) int64 {
	return min(max(bytes/((fullWorkflows+1)*messages.MaxTask), minQueued), maxQueued)
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
	cfg.MaxMsgs, cfg.MaxConsumers = -1, -1
	if cfg.MaxMsgSize == 0 {
		cfg.MaxMsgSize = -1
	}
	if cfg.MaxMsgsPerSubject == 0 {
		cfg.MaxMsgsPerSubject = -1
	}
	switch {
	case k == volatile:
		cfg.Storage = jetstream.MemoryStorage
		cfg.MaxBytes = min(cfg.MaxBytes, 64<<20)
	case k != truth && o.Replicas == 1:
		cfg.PersistMode = jetstream.AsyncPersistMode
	}
	// A server whose disk was full when it was killed may find a compressed block that
	// it cannot read, and then its replica stands still until an operator removes it: of
	// a block without compression it knows the messages before the torn one.
	cfg.Compression = jetstream.NoCompression
	return cfg
}

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
	// DefaultStoreBytes is the default size of all streams together.
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
	BucketAccess   = messages.BucketAccess
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
	// maxQueued bounds the tasks that wait on one subject, which is one workflow of one
	// user; further tasks are answered as busy. A tenant has many users, and nodes may have
	// to search all of its waiting tasks for the tasks of other tenants.
	maxQueued = 1000
	// minQueued is the minimum number of waiting tasks for a store of any size.
	minQueued = 64
	// fullWorkflows is the number of workflows of one user for which the stream of tasks
	// has room besides the tasks of others, each with the maximum number of waiting tasks
	// of the maximum size. A server bounds subjects and whole streams only: with more such
	// workflows or users a tenant could fill the stream.
	fullWorkflows = 2
	// minDuplicates is the shortest duplicate window that the server accepts: Rath does not
	// rely on its duplicate detection, and each id in it costs memory. In the stream of tasks
	// it is taskDuplicates, within which a client is told at once that an id is used.
	minDuplicates  = 100 * time.Millisecond
	taskDuplicates = 20 * time.Second
)

// EventStream is the name of the stream that holds a partition's events.
func EventStream(generation, partition uint32) string {
	return messages.EventStream(generation, partition)
}

// metaPartitions is the metadata key under which an event stream stores the number of
// partitions of its generation, so that no process needs, or can get wrong, a setting for
// it.
const metaPartitions = "rath-partitions"

// kind is the purpose of a stream; it determines the storage.
type kind uint8

const (
	truth      kind = iota // synced, and never lost
	projection             // rebuilt from the truth if lost: one replica may store later
	volatile               // renewed all the time: memory
)

// ordersBatches reports whether a server of this version accepts batches in order. Older
// servers reject a stream that asks for them.
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
		// A value larger than a message is stored as several messages in one atomic batch.
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
		// Replicas agree on a batch at once. On one replica, which stores this stream
		// later, the messages of a batch follow each other.
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
	buckets(add)
	return out
}

// queuedWithin returns how many tasks may wait on one subject of a stream of so
// many bytes.
func queuedWithin(bytes int64) int64 {
	return min(max(bytes/((fullWorkflows+1)*messages.MaxTask), minQueued), maxQueued)
}

// buckets adds the rows of the buckets.
func buckets(add func(k kind, share int64, cfg jetstream.StreamConfig)) {
	add(volatile, 1, bucket(BucketNode, "nodes that live", NodeTTL))
	add(truth, 4, bucket(BucketRegistry, "workflows and tools on offer", 0))
	add(truth, 14, bucket(BucketAlias, "names that users chose: created once", 0))
	access := bucket(BucketAccess, "tokens and page sessions of the web", 0)
	access.AllowMsgTTL = true // each entry has an expiry of its own
	add(truth, 1, access)
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

// complete sets the fields that follow from the purpose of a stream.
func (o *Options) complete(k kind, share int64, cfg jetstream.StreamConfig) jetstream.StreamConfig {
	cfg.Replicas = o.Replicas
	if cfg.Duplicates = minDuplicates; cfg.Name == StreamTasks {
		cfg.Duplicates = taskDuplicates
	}
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
	// A server whose disk was full when it was killed may find a compressed block that it
	// cannot read. Its replica then stops until an operator removes it. From a block
	// without compression it recovers the messages before the torn one.
	cfg.Compression = jetstream.NoCompression
	return cfg
}

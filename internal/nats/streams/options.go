package streams

import (
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/nats/conn"
)

const (
	// DefaultGeneration is the generation of event streams of a new installation.
	DefaultGeneration = 1
	// DefaultPartitions is the number of event streams of a generation: each is a
	// writer of its own, and on three replicas a Raft group.
	DefaultPartitions = 4
	// EmbeddedPartitions is that number for a server which syncs in rounds: a round
	// syncs each stream that was written to, so that more of them wait for more.
	EmbeddedPartitions = 1
)

// Options configure a connection to the streams. The zero value is a connection to
// DefaultURL at level fsync, which needs a Probe.
type Options struct {
	conn.Options

	// Disk returns the room on the disk of the streams and does not block. nil means that
	// this process cannot see the disk.
	Disk func() Disk
	// Client restricts the connection to submitting, querying and watching, like a program
	// outside the cluster: it verifies nothing and does not store.
	Client bool
	// Level is the durability to promise; empty means Fsync.
	Level Level
	// Probe returns the servers' sync configuration. Level Fsync needs one.
	Probe Probe
	// Generation and Partitions determine the event streams of new sessions; zero means
	// DefaultGeneration, and as many partitions as the generation has, or NewPartitions if
	// it is new. Partitions are fixed per generation.
	Generation, Partitions uint32
	// NewPartitions is the number of partitions of a new generation; zero is
	// DefaultPartitions.
	NewPartitions uint32
	// Replicas of each stream; zero means 1.
	Replicas int
	// StoreBytes is shared among the streams that Provision creates; zero
	// means DefaultStoreBytes.
	StoreBytes int64
	// KeepResults is how long stored results are kept, as set by Provision; zero is as long
	// as there is room. Later they are read from the logs.
	KeepResults time.Duration
	// Sign signs the statement about each result that is stored over this connection; nil
	// stores results without a signature. It may be called concurrently.
	Sign func(statement string) (signature string, err error)
}

func (o *Options) setDefaults() {
	if o.Level == "" {
		o.Level = Fsync
	}
	if o.Generation == 0 {
		o.Generation = DefaultGeneration
	}
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	if o.StoreBytes == 0 {
		o.StoreBytes = DefaultStoreBytes
	}
}

func (o *Options) validate() error {
	if o.Replicas < 0 || o.Replicas > 5 || o.Replicas%2 == 0 {
		return fmt.Errorf("nats/streams: %d replicas: want 1, 3 or 5", o.Replicas)
	}
	if o.Partitions > maxPartitions {
		return fmt.Errorf("nats/streams: %d partitions: at most %d are allowed", o.Partitions, maxPartitions)
	}
	_, err := ParseLevel(string(o.Level))
	return err
}

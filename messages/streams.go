package messages

import "strconv"

// The streams and buckets of an installation, besides the event streams, see
// EventStream. The stream of a bucket is "KV_" and its name.
const (
	StreamSnap     = "SNAP"
	StreamTasks    = "TASKS"
	StreamLineage  = "LINEAGE"
	StreamResult   = "RESULT"
	StreamDLQ      = "DLQ"
	StreamBlob     = "BLOB"
	StreamMemory   = "MEMORY"
	BucketNode     = "NODE"
	BucketRegistry = "REGISTRY"
	BucketAlias    = "ALIAS"
	BucketAccess   = "ACCESS"
)

// EventStream is the name of the stream that holds a partition's events.
func EventStream(generation, partition uint32) string {
	return "EV_" + strconv.FormatUint(uint64(generation), 10) + "_" + strconv.FormatUint(uint64(partition), 10)
}

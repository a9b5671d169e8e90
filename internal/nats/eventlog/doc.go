// Package eventlog keeps the logs of sessions in streams, with their snapshots, blobs and
// the names that users gave. The contracts are commitlog.Log, commitlog.Snapshotter and
// blob.Store; the log's compare-and-set decides who may write.
//
// One subject holds one session, and one message one commit. Readers of an event stream
// tell commits from other messages with a [Chain].
//
// Files, the lowest first: decoded, logs, blob, tombstone, log, dump,
// checkpoint, linearizable, alias, snapshot, append, chain.
package eventlog

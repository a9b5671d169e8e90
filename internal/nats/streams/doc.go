// Package streams is the table of streams, buckets and consumers: their configuration, the
// settings that must match the table, the process that creates them, and their usage.
//
// A [Streams] is the streams at one durability over one connection. A connection that
// stores promises a durability, see [Level], and does not store when the servers provide
// less. [Streams.Provision] creates streams and alters none; operators use [Streams.Plan].
// Missing rights of the credentials are reported as a [conn.PermissionError].
//
// Files, the lowest first: options, streams, recreate, capacity, store, durability,
// bucket, settings, lag, queues, change, plan, provision, disk, tenant_usage,
// transient.
package streams

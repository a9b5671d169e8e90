// Package streams is the table of streams, buckets and consumers: which there are, what
// has to be as the table says, who makes them, how full they are.
//
// A [Streams] is the streams at one durability over one connection. One that stores
// promises a durability, see [Level], and refuses to store when the servers run with
// less. Streams are made by [Streams.Provision], which alters none, or by an operator,
// see [Streams.Plan]. What these credentials lack is a [conn.PermissionError].
//
// Files, the lowest first: options, streams, recreate, capacity, store, durability,
// bucket, settings, lag, queues, change, plan, provision, disk, tenant_usage,
// transient.
package streams

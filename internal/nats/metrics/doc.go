// Package metrics is what a node tells Prometheus: counters of what the node itself
// did, and gauges of how it and the partitions that it relays stand at a scrape.
//
// The series are those of [Series], which docs/metrics.md describes. None has a label
// that grows with tenants, runs or sessions. A scrape asks nothing outside of the
// process, so it answers while NATS is away.
package metrics

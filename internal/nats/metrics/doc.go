// Package metrics exports a node's metrics to Prometheus: counters of the node's own work,
// and gauges of the node and its relayed partitions at a scrape.
//
// The series are those of [Series], which docs/metrics.md describes. None has a label that
// grows with tenants, runs or sessions. A scrape sends no request outside of the process,
// so it answers while NATS is away.
package metrics

// Package nats groups the packages that store and move data over NATS: connections,
// streams, logs, dispatching, requests, retention, and the embedded server.
package nats

// Package wire holds the messages that no program in Go needs to name: what nodes send
// each other and keep, what package client writes and reads for its callers, and what it
// answers about nodes, streams, what is on offer, lineage and runs at this moment.
// FORMAT.md of package messages documents their JSON like that of all others; package
// messages holds what programs name.
package wire

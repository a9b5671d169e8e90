// Package wire holds the messages that no program in Go needs to name: queries, their pages,
// answers and errors, and blobs in messages. FORMAT.md of package messages documents their
// JSON like that of all others; package messages holds what programs name, and package
// translate what belongs to nodes.
package wire

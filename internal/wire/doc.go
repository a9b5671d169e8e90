// Package wire holds the messages that Go programs do not use directly: queries, their
// pages, answers and errors, and blobs in messages. FORMAT.md of package messages
// documents their JSON like all others. Package messages holds the types that programs
// use, and package translate those of nodes.
package wire

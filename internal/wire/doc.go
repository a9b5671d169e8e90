// Package wire holds the messages that no program in Go needs to name: what nodes send
// each other and keep, and what package client writes and reads for its callers. FORMAT.md of package
// messages documents their JSON like that of all others; package messages holds what
// programs name.
package wire

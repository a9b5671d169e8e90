// Package wire holds the messages that no program in Go needs to name: what nodes send
// each other and keep, and the lists that package client unwraps. FORMAT.md of package
// messages documents their JSON like that of all others; package messages holds what
// programs name.
package wire

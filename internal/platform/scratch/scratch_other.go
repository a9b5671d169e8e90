//go:build !linux

package scratch

// InMemory does nothing: there is no file system in memory that every host has.
func InMemory() {}

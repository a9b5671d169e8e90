//go:build !linux

package scratch

// InMemory does nothing: these hosts share no common file system in memory.
func InMemory() {}

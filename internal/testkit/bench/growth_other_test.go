//go:build !linux

package bench

// alone does nothing: the memory of a process is read only on Linux.
func alone() {}

//go:build !linux

package bench

// alone does nothing: how much memory a process has is read on Linux only.
func alone() {}

//go:build unix && !linux

package local

// RunHost does nothing: its purpose is tested on Linux.
func RunHost() {}

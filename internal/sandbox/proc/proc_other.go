//go:build !linux && !darwin && !windows

package proc

// Started is not available here, so no process can be identified with certainty.
func Started(int) (uint64, bool) { return 0, false }

func boot() string { return "" }

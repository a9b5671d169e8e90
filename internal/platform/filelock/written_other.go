//go:build !linux

package filelock

import "os"

// CloseWritten closes a file that was written.
func CloseWritten(f *os.File) error { return f.Close() }

//go:build !linux && !darwin

package mirror

import "io/fs"

// stampOf knows nothing here that a program could not set, so that each file is read.
func stampOf(fs.FileInfo) stamp { return stamp{} }

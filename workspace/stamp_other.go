//go:build !linux && !darwin

package workspace

import "io/fs"

// stampOf reports false: a program can forge all metadata here, so each file is read.
func stampOf(fs.FileInfo) (stamp, bool) { return stamp{}, false }

// ownedByUser reports false: without stamps no index is useful.
func ownedByUser(fs.FileInfo) bool { return false }

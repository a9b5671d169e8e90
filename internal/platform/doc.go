// Package platform groups the packages about the operating system: locks of files,
// terminals, temporary directories, and goroutines that are used again.
package platform

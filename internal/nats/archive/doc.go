// Package archive removes trees of sessions from the streams and restores them: a tree is
// fenced, written to a file by the caller, and purged; its tombstones stay.
//
// Files, the lowest first: archive, purge, results, blobs, sweep, restore, trees.
package archive

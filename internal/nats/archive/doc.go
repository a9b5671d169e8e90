// Package archive takes trees of sessions out of the streams and brings them back: a tree
// is fenced, written away by the caller, and purged; its tombstones stay.
//
// Files, the lowest first: archive, purge, results, blobs, sweep, restore, trees.
package archive

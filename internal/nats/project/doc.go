// Package project derives from the event streams what is asked for across sessions: the
// records of lineage, the results of runs, and how far both have come.
//
// A relay of a partition publishes lineage in the order of its commits. A caller that
// needs what it wrote waits for the watermark of the partition.
//
// Files, the lowest first: projections, watermark, lineage, history, page, records,
// repair, result, runlist.
package project

// Package project derives data across sessions from the event streams: the records of
// lineage, the results of runs, and the watermarks of both.
//
// A relay of a partition publishes lineage in the order of its commits. A caller that needs
// to read its own writes waits for the watermark of the partition.
//
// A list of few runs among many uses an index of runs, which a node builds from LINEAGE on
// demand and caches in a file.
//
// Files, the lowest first: projections, watermark, lineage, history, page, records,
// repair, result, runlist, runindex, follow.
package project

package messages

// LineageEnd is the cursor for the end: an empty page, whose Next is before all later
// commits.
const LineageEnd = "end"

// LineagePage is a page of records, in the order of LINEAGE: the records of an event
// stream are in the order of its commits. A page has all records of a message even if
// they exceed the limit, and may have none if the reader has read the records of its
// range. Next is the cursor of the next page; without More the reader is up to date.
type LineagePage struct {
	Records []LineageRecord `json:"records"`
	Next    string          `json:"next"`
	More    bool            `json:"more"`
}

// LineageRecord is a record. A query with its Cursor returns the records after it.
type LineageRecord struct {
	Cursor string `json:"cursor"`
	Record Record `json:"record"`
}

// Repaired is the outcome of a repair of a partition's lineage.
type Repaired struct {
	// From is the sequence of the first commit in the event stream whose records were
	// missing, zero for none.
	From uint64 `json:"from,omitempty"`
	// Published and Removed count messages of LINEAGE: those that are derived again
	// from there, and the earlier ones that they replace.
	Published int `json:"published,omitempty"`
	Removed   int `json:"removed,omitempty"`
}

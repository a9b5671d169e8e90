package wire

// RepairGoesOn is the note of an answer to a repair that takes longer than one request may:
// sent again it is answered when the repair has ended.
const RepairGoesOn = "goes on"

// Repaired is the outcome of a repair of a partition's lineage.
type Repaired struct {
	// From is the sequence of the first commit in the event stream whose records were
	// missing, zero for none.
	From uint64 `json:"from,omitempty"`
	// Published and Removed count messages of LINEAGE: those that are derived again from
	// there, and those before them that they replace.
	Published int `json:"published,omitempty"`
	Removed   int `json:"removed,omitempty"`
}

// RepairAnswer is the answer to the request to repair the lineage of a partition.
type RepairAnswer struct {
	Answer
	Repaired
	Partitions uint32 `json:"partitions,omitempty"` // that there are
}

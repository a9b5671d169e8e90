package wire

import "github.com/rathcluster/rath/messages"

// RepairGoesOn is the note of an answer to a repair that exceeds the time of one
// request: the same request, sent again, is answered when the repair has ended.
const RepairGoesOn = "goes on"

// RepairAnswer is the answer to the request to repair the lineage of a partition.
type RepairAnswer struct {
	Answer
	messages.Repaired
	Partitions uint32 `json:"partitions,omitempty"` // the number of partitions
}

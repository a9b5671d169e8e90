package wire

import "github.com/rathcluster/rath/messages"

// RepairGoesOn is the note of an answer to a repair that takes longer than one request may:
// sent again it is answered when the repair has ended.
const RepairGoesOn = "goes on"

// RepairAnswer is the answer to the request to repair the lineage of a partition.
type RepairAnswer struct {
	Answer
	messages.Repaired
	Partitions uint32 `json:"partitions,omitempty"` // that there are
}

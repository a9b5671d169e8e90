package messages

// Node is a live node, or one that died so recently that its entry still exists.
type Node struct {
	Incarnation string   `json:"incarnation"`
	Name        string   `json:"name"`
	Pools       []string `json:"pools,omitempty"`
	Slots       int      `json:"slots"`
	// Free is the number of runs that could start now.
	Free    int    `json:"free"`
	Version string `json:"version,omitempty"`
	// PID is its process on its machine.
	PID int `json:"pid,omitempty"`
	// Isolation is the strongest level that its sandboxes enforce, "" if it opens
	// none.
	Isolation  string `json:"isolation,omitempty"`
	Durability string `json:"durability,omitempty"`
	Draining   bool   `json:"draining,omitempty"`
	// Leaked is the number of functions of workflows that were given up after a cancel or
	// a deadline, and have not returned. Past 64 the node drains.
	Leaked int `json:"leaked,omitempty"`
	// Gossip is the address of the node's gossip, "" if it has none.
	Gossip string `json:"gossip,omitempty"`
	// Dead reports that the answering node considers a node with gossip dead. Silent is
	// the time since the last sign of life, in milliseconds and in steps of ten
	// seconds, once it exceeds the normal interval: the node has died, is frozen or is
	// disconnected. Both are in answers only, not in the node's entry.
	Dead   bool  `json:"dead,omitempty"`
	Silent int64 `json:"silent_ms,omitempty"`
	// Offers are the workflows of this node, as "name@revision".
	Offers  []string `json:"offers,omitempty"`
	Started int64    `json:"started_ms"`
	// Full are the streams with restrictions: those of events, and the others that
	// every run needs. FullDisk stands for the disk of all of them.
	Full []StreamFill `json:"full,omitempty"`
	// Programs are those of sandbox.Programs that are available in its sandboxes
	// without an image. Without a shell each command of an agent fails.
	Programs []string `json:"programs,omitempty"`
	// Model is the default model of its agents, "" if none is set. ModelError is the
	// reason why it cannot be used, such as a missing key.
	Model      string `json:"model,omitempty"`
	ModelError string `json:"model_error,omitempty"`
	// Strangers are the incarnations of nodes that use the same streams and belong to
	// another gossip: each half considers the other one dead.
	Strangers []string `json:"strangers,omitempty"`
	// Gaps are the event streams in whose lineage the node's relay found a gap that it
	// could not fill. A repair can fill it once the cause is fixed.
	Gaps []string `json:"gaps,omitempty"`
}

// The messages that a stream accepts.
const (
	RoomAll  = "all"
	RoomOpen = "open_runs" // no new runs
	RoomEnds = "ends"      // no steps: runs only end, or are cancelled and answered
	RoomNone = "nothing"
)

// FullDisk is the name of a StreamFill for the disk of the store.
const FullDisk = "disk"

// StreamFill is the usage of a stream.
type StreamFill struct {
	Stream   string `json:"stream"`
	Bytes    uint64 `json:"bytes"`
	MaxBytes uint64 `json:"max_bytes"`
	// Room is RoomAll, RoomOpen, RoomEnds or RoomNone.
	Room string `json:"room"`
	// Reason is the reason why the stream stores no messages, unless it only lacks
	// space.
	Reason string `json:"reason,omitempty"`
	// Inodes is the number of free inodes of a disk where they run short.
	Inodes *int64 `json:"inodes,omitempty"`
}

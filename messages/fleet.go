package messages

// Node is a node that lives, or died so recently that its entry is still there.
type Node struct {
	Incarnation string   `json:"incarnation"`
	Name        string   `json:"name"`
	Pools       []string `json:"pools,omitempty"`
	Slots       int      `json:"slots"`
	// Free is how many runs could begin now.
	Free    int    `json:"free"`
	Version string `json:"version,omitempty"`
	// PID is its process on its machine.
	PID int `json:"pid,omitempty"`
	// Isolation is the strongest level that its sandboxes enforce, "" if it opens
	// none.
	Isolation  string `json:"isolation,omitempty"`
	Durability string `json:"durability,omitempty"`
	Draining   bool   `json:"draining,omitempty"`
	// Gossip is where the other nodes reach its gossip, "" of one that has none.
	Gossip string `json:"gossip,omitempty"`
	// Dead says of a node with gossip that the node which answers takes it for dead.
	// Silent is how many milliseconds ago it was heard of, in steps of ten seconds,
	// once that is longer than a node is silent: it has died, is frozen or cut off.
	// Both are in answers only, not in its entry.
	Dead   bool  `json:"dead,omitempty"`
	Silent int64 `json:"silent_ms,omitempty"`
	// Offers are the workflows of this node, as "name@revision".
	Offers  []string `json:"offers,omitempty"`
	Started int64    `json:"started_ms"`
	// Full are the streams that do not take everything any more: those of events, and
	// what else every run needs. FullDisk stands for the disk of all of them.
	Full []StreamFill `json:"full,omitempty"`
	// Programs are those of sandbox.Programs that commands find in its sandboxes without an
	// image. Without a shell each command of an agent fails.
	Programs []string `json:"programs,omitempty"`
	// Model is the default model of its agents, "" if no name is set. ModelError is why it
	// cannot be asked, such as a missing key.
	Model      string `json:"model,omitempty"`
	ModelError string `json:"model_error,omitempty"`
	// Strangers are the incarnations of nodes which use the same streams and belong to
	// another gossip: each half takes the other one for dead.
	Strangers []string `json:"strangers,omitempty"`
	// Gaps are the event streams whose lineage has a gap that the node's relay found and
	// could not fill: a repair can, once its cause is gone.
	Gaps []string `json:"gaps,omitempty"`
}

// What a stream takes.
const (
	RoomAll  = "all"
	RoomOpen = "open_runs" // no new runs
	RoomEnds = "ends"      // no steps: runs only end, or are cancelled and answered
	RoomNone = "nothing"
)

// FullDisk is the name of a StreamFill that is about the disk of the store.
const FullDisk = "disk"

// StreamFill is how full a stream is.
type StreamFill struct {
	Stream   string `json:"stream"`
	Bytes    uint64 `json:"bytes"`
	MaxBytes uint64 `json:"max_bytes"`
	// Room is RoomAll, RoomOpen, RoomEnds or RoomNone.
	Room string `json:"room"`
	// Reason says why nothing is stored, unless only room is missing.
	Reason string `json:"reason,omitempty"`
	// Inodes is the number of free inodes of a disk where they run short.
	Inodes *int64 `json:"inodes,omitempty"`
}

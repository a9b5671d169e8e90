package messages

// Commits is a page of a session's log, as it is stored. Next is the At of the next page,
// absent at the end.
type Commits struct {
	Commits []StoredCommit  `json:"commits"`
	Next    *CommitPosition `json:"next,omitempty"`
}

// StoredCommit is a stored commit: its hash is that of the bytes of Commit.
type StoredCommit struct {
	Token  uint64 `json:"token"`
	Commit string `json:"commit"`
}

// CommitPosition is the position of a reader in a log.
type CommitPosition struct {
	Seq   uint64 `json:"seq"`
	Token uint64 `json:"token"`
	Hash  string `json:"hash"`
}

package wire

import "github.com/rathcluster/rath/memory"

// Memory is the answer to the queries memory, note and recall: each has what it was asked
// for. More says that there are others behind the last of Memories, URIs or Notes.
// WordsOnly says why hits were found by words alone, where a model makes vectors, too.
// TooLarge are notes, among Notes, that no answer holds.
type Memory struct {
	Memories []string     `json:"memories,omitempty"`
	URIs     []string     `json:"uris,omitempty"`
	Notes    []Note       `json:"notes,omitempty"`
	TooLarge []string     `json:"too_large,omitempty"`
	More     bool         `json:"more,omitempty"`
	Text     string       `json:"text,omitempty"`
	Hits     []memory.Hit `json:"hits,omitempty"`

	WordsOnly string `json:"words_only,omitempty"`
}

// Note is a note as clients read it.
type Note struct {
	URI    string        `json:"uri"`
	Text   string        `json:"text"`
	Origin memory.Origin `json:"origin,omitzero"`
}

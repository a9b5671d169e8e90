package wire

import "github.com/rathcluster/rath/memory"

// Memory is the answer to the queries memory, note and recall; each sets its own
// fields. More reports that there are further Memories, URIs or Notes after the last
// one. WordsOnly is the reason why hits were found by keyword only although a model
// makes vectors. TooLarge are those of Notes that exceed the size of an answer.
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

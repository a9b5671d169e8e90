package wire

import "github.com/rathcluster/rath/messages"

// MaxImport is the most bytes of a file that a client has a node take over.
const MaxImport = 32 << 20

// ImportGoesOn is the note of an answer to an import that takes longer than one request
// may: sent again it goes on where it was.
const ImportGoesOn = "goes on"

// ImportAnswer is the answer to the request to import a file. Done says that all of it is
// there.
type ImportAnswer struct {
	Answer
	Imported []messages.Imported `json:"imported,omitempty"`
}

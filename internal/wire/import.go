package wire

import "github.com/rathcluster/rath/messages"

// MaxImport is the maximum size of a file that a client imports, in bytes.
const MaxImport = 32 << 20

// ImportGoesOn is the note of an answer to an import that exceeds the time of one
// request: the same request, sent again, resumes the import.
const ImportGoesOn = "goes on"

// ImportAnswer is the answer to the request to import a file. Done reports that the
// whole file is imported.
type ImportAnswer struct {
	Answer
	Imported []messages.Imported `json:"imported,omitempty"`
}

package journal

import (
	"bytes"
	"encoding/json"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/canonical"
)

// Instructions name the blobs from which a model's request was built, besides the rows
// of the session. Credentials are masked in them. A zero digest means none.
//
// The list is a blob of its own, because all steps of a call have the same one: a step
// names the list alone.
type Instructions struct {
	Ask    blob.Digest `json:"ask,omitzero"`    // the last message, which is no row
	Notes  blob.Digest `json:"notes,omitzero"`  // the notes that the agent recalled, as the step of the recall names them
	Prompt blob.Digest `json:"prompt,omitzero"` // the system message
	Remark blob.Digest `json:"remark,omitzero"` // the last message, which asks the model to continue after an answer that is no row
	Tools  blob.Digest `json:"tools,omitzero"`  // JSON: name, description and schema of each tool
}

// instructionList is the blob of Instructions.
type instructionList struct {
	Instructions *Instructions `json:"instructions"`
}

// List returns the bytes of the blob, nil if the request has no instructions.
func (in Instructions) List() []byte {
	if in == (Instructions{}) {
		return nil
	}
	return []byte(canonical.MustMarshal(instructionList{&in}))
}

// ReadInstructions decodes the bytes of a blob, and reports whether they are a list.
func ReadInstructions(data []byte) (Instructions, bool) {
	var l instructionList
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if dec.Decode(&l) != nil || l.Instructions == nil || !bytes.Equal(l.Instructions.List(), data) {
		return Instructions{}, false
	}
	return *l.Instructions, true
}

// Digests returns the blobs of the parts.
func (in Instructions) Digests() []blob.Digest {
	var all []blob.Digest
	for _, d := range []blob.Digest{in.Ask, in.Notes, in.Prompt, in.Remark, in.Tools} {
		if !d.IsZero() {
			all = append(all, d)
		}
	}
	return all
}

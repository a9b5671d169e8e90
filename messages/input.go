package messages

import "github.com/rathcluster/rath/internal/core/strict"

// DecodeInput reads the input of a workflow into a struct as strictly as a task is
// read: for an unknown field, a duplicate field or a field of another type the error
// names the field, and wraps run.ErrMalformed. Lists of structs are read the same way.
// The input of a task is at most MaxInput bytes.
func DecodeInput(workflow string, data []byte, into any) error {
	return strict.Decode(MaxInput, workflow+" input", data, into)
}

package messages

// DecodeInput reads the input of a workflow into a struct as strictly as a task
// is read: an unknown field, one that is there twice or one of another type is a
// FieldError that names it. Lists of structs are read the same way. The input of
// a task is at most MaxInput bytes.
func DecodeInput(workflow string, data []byte, into any) error {
	return DecodeStrict(MaxInput, workflow+" input", data, into)
}

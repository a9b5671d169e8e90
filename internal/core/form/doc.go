// Package form defines the type of a question: the JSON schema of its answer, for a Go
// type, in words, with an example, and in the form in which operators write such an
// answer. The run that starts to wait records the schema. The session's writer checks
// every answer against it before recording the answer.
//
//	schema.go    the schema of a Go type that encoding/json decodes an answer into
//	check.go     whether a value matches, and the value as it is recorded
//	words.go     the schema in a few words, and an example that it takes
//	read.go      the value that a text spells
package form

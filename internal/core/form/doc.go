// Package form is the type of a question: the JSON schema that its answer has to match,
// for a Go type, in words, with an example, and as people write such an answer. Whoever
// begins to wait records the schema; the session's writer checks an answer against it
// before it records that, whichever way the answer came.
//
//	schema.go    the schema of a Go type that encoding/json decodes an answer into
//	check.go     whether a value matches, and the value as it is recorded
//	words.go     the schema in a few words, and an example that it takes
//	read.go      the value that a text spells
package form

// Package schema checks values against JSON schemas that other programs announce, with
// bounds on the time and the stack of a check, and names the part that does not match:
// the arguments of tools, and the answers to questions.
//
//	shape.go     a schema with its parts, and the bounds on its depth
//	effort.go    the time that a check of a value takes
//	schema.go    the check, and the text of a mismatch
//	unquote.go   arguments that a model quoted
package schema

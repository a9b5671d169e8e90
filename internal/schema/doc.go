// Package schema checks values against JSON schemas that other programs announce, with bounds
// on the time and the stack that a check takes, and names what does not match: the arguments
// of tools, and the answers to questions.
//
// Files, the lowest first: shape, effort, schema, unquote.
package schema

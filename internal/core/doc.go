// Package core groups the packages below all others: logs of commits and the
// journals in them, JSON in one form, schemas, strict reading of JSON, short pieces
// of text, and the protections that a test program can be linked without.
package core

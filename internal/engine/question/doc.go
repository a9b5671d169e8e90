// Package question renders the question of a tool for its readers, so that no text of a
// tool or of a server can be taken for text of Rath.
package question

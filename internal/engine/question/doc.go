// Package question renders the question of a tool for the people who answer it, so that
// no text of a tool or of a server can be taken for that of Rath.
package question

// Package inspect has the commands that look: at runs, sessions, files, and what they
// came of. They change nothing.
package inspect

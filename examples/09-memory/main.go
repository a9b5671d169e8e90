// Command 09-memory remembers notes, and recalls them in another session.
//
//	go run ./examples/09-memory
//
// The workflow is in notes/notes.go. The model is a script, notes/model.txtar,
// so it runs without a key and always gives the same output.
package main

import (
	"github.com/rathcluster/rath/examples/09-memory/notes"
	"github.com/rathcluster/rath/examples/ladder"
)

func main() { ladder.Main(notes.Rung()) }

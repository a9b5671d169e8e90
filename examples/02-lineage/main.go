// Command 02-lineage forks a session, rejects one branch and adopts the other.
//
//	go run ./examples/02-lineage
//
// The workflow is in lineage/lineage.go. The model is a script, lineage/model.txtar,
// so it runs without a key and always gives the same output.
package main

import (
	"github.com/rathcluster/rath/examples/02-lineage/lineage"
	"github.com/rathcluster/rath/examples/ladder"
)

func main() { ladder.Main(lineage.Rung()) }

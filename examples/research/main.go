// Command research writes a paper from two branches that were compressed.
//
//	go run ./examples/research
//
// The workflow is in research/research.go. The model is a script, research/model.txtar,
// so it runs without a key and always gives the same output.
package main

import (
	"github.com/rathcluster/rath/examples/ladder"
	"github.com/rathcluster/rath/examples/research/research"
)

func main() { ladder.Main(research.Rung()) }

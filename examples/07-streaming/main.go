// Command 07-streaming shows the pieces of an answer while the model speaks.
//
//	go run ./examples/07-streaming
//
// The workflow is in streaming/streaming.go. The model is a script, streaming/model.txtar,
// so it runs without a key and always gives the same output.
package main

import (
	"github.com/rathcluster/rath/examples/07-streaming/streaming"
	"github.com/rathcluster/rath/examples/ladder"
)

func main() { ladder.Main(streaming.Rung()) }

// Command 08-compress replaces a long session by a summary.
//
//	go run ./examples/08-compress
//
// The workflow is in compress/compress.go. The model is a script, compress/model.txtar,
// so it runs without a key and always gives the same output.
package main

import (
	"github.com/rathcluster/rath/examples/08-compress/compress"
	"github.com/rathcluster/rath/examples/ladder"
)

func main() { ladder.Main(compress.Rung()) }

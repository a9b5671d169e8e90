// Command 01-hello asks an agent one thing.
//
//	go run ./examples/01-hello
//
// The workflow is in hello/hello.go. The model is a script, hello/model.txtar,
// so it runs without a key and always gives the same output.
package main

import (
	"github.com/rathcluster/rath/examples/01-hello/hello"
	"github.com/rathcluster/rath/examples/ladder"
)

func main() { ladder.Main(hello.Rung()) }

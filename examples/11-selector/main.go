// Command 11-selector routes by code, and lets a model choose the rest.
//
//	go run ./examples/11-selector
//
// The workflow is in selector/selector.go. The model is a script, selector/model.txtar,
// so it runs without a key and always gives the same output.
package main

import (
	"github.com/rathcluster/rath/examples/11-selector/selector"
	"github.com/rathcluster/rath/examples/ladder"
)

func main() { ladder.Main(selector.Rung()) }

// Command 10-provider asks two models with settings of their own.
//
//	go run ./examples/10-provider
//
// The workflow is in provider/provider.go. The model is a script, provider/model.txtar,
// so it runs without a key and always gives the same output.
package main

import (
	"github.com/rathcluster/rath/examples/10-provider/provider"
	"github.com/rathcluster/rath/examples/ladder"
)

func main() { ladder.Main(provider.Rung()) }

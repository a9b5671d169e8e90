// Command engineering lets engineers build parts of one program at the same time.
//
//	go run ./examples/engineering
//
// The workflow is in engineering/engineering.go. The model is a script, engineering/model.txtar,
// so it runs without a key and always gives the same output.
package main

import (
	"github.com/rathcluster/rath/examples/engineering/engineering"
	"github.com/rathcluster/rath/examples/ladder"
)

func main() { ladder.Main(engineering.Rung()) }

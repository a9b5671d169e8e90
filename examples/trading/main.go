// Command trading lets a bear and a bull argue at the same time, and a trader decide.
//
//	go run ./examples/trading
//
// The workflow is in trading/trading.go. The model is a script, trading/model.txtar,
// so it runs without a key and always gives the same output.
package main

import (
	"github.com/rathcluster/rath/examples/ladder"
	"github.com/rathcluster/rath/examples/trading/trading"
)

func main() { ladder.Main(trading.Rung()) }

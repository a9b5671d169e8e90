// Command 05-custom-tool gives an agent Go functions as tools.
//
//	go run ./examples/05-custom-tool
//
// The workflow is in shop/shop.go. The model is a script, shop/model.txtar,
// so it runs without a key and always gives the same output.
package main

import (
	"github.com/rathcluster/rath/examples/05-custom-tool/shop"
	"github.com/rathcluster/rath/examples/ladder"
)

func main() { ladder.Main(shop.Rung()) }

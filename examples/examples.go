// Package examples lists the examples of the ladder, in order: each builds on the previous
// ones. docs/tutorial.md explains them.
//
//	go run ./examples/01-hello
//
// The tests run all of them in one process, on an embedded node, and on a fleet of three
// nodes of which each is killed in the middle, and require the same outcome: see testdata.
package examples

import (
	"github.com/rathcluster/rath/examples/01-hello/hello"
	"github.com/rathcluster/rath/examples/02-lineage/lineage"
	"github.com/rathcluster/rath/examples/03-sandbox/sandboxes"
	"github.com/rathcluster/rath/examples/04-builtin-tools/builtin"
	"github.com/rathcluster/rath/examples/05-custom-tool/shop"
	"github.com/rathcluster/rath/examples/06-mcp/parrot"
	"github.com/rathcluster/rath/examples/07-streaming/streaming"
	"github.com/rathcluster/rath/examples/08-compress/compress"
	"github.com/rathcluster/rath/examples/09-memory/notes"
	"github.com/rathcluster/rath/examples/10-provider/provider"
	"github.com/rathcluster/rath/examples/11-selector/selector"
	"github.com/rathcluster/rath/examples/engineering/engineering"
	"github.com/rathcluster/rath/examples/ladder"
	"github.com/rathcluster/rath/examples/research/research"
	"github.com/rathcluster/rath/examples/trading/trading"
)

// Ladder returns the examples.
func Ladder() []ladder.Rung {
	return []ladder.Rung{
		hello.Rung(), lineage.Rung(), sandboxes.Rung(), builtin.Rung(), shop.Rung(), parrot.Rung(),
		streaming.Rung(), compress.Rung(), notes.Rung(), provider.Rung(), selector.Rung(),
		trading.Rung(), engineering.Rung(), research.Rung(),
	}
}

// Command node is a Rath node with the built-in workflows: a daemon that takes
// tasks from NATS, or from a server of its own over a directory. Nodes with
// workflows of their own call node.Main with them, as `rath init` shows.
package main

import "github.com/rathcluster/rath/node"

func main() { node.Main() }

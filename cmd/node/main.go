// Command node is a Rath node with the built-in workflows: a daemon that takes
// tasks from NATS, or from a server of its own over a directory. It does what
// `rath node` does, which images and machines run: installed, a program named
// node would hide Node.js. Nodes with workflows of their own call node.Main with
// them, as `rath init` shows.
package main

import "github.com/rathcluster/rath/node"

func main() { node.Main() }

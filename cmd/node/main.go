// Command node is a Rath node with the built-in workflows: a daemon that takes tasks
// from NATS, or from a server of its own over a directory. It is the same as `rath
// node`, the form that images and machines run: installed, a program named node would
// hide Node.js. Nodes with workflows of their own call node.Main with them, as the
// output of `rath init` shows.
package main

import "github.com/rathcluster/rath/node"

func main() { node.Main() }

// Command router runs the workflows "auto", which chooses among the workflows on offer,
// and "fanout", which runs several side by side. It is a node of the pool "router" that
// offers no other workflow; any number of them run side by side. It is the same as
// `rath router`, the form that images and machines run.
package main

import "github.com/rathcluster/rath/node"

func main() { node.RouterMain() }

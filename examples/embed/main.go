// Command embed is a Rath node that offers a workflow of its own.
//
//	go run ./examples/embed
//
// It keeps its sessions in ./.rath with a NATS server of its own on
// 127.0.0.1:4222 (see -help); with -nats it joins servers that there are
// already. Any NATS client can then submit tasks to the workflow "summary":
//
//	go run ./cmd/rath submit summary -m "A long text." --wait
package main

import "github.com/rathcluster/rath/node"

func main() { node.Main(registration()) }

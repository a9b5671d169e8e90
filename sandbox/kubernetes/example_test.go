package kubernetes_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/kubernetes"
)

// A command in a pod. The program must call kubernetes.Reexec first.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	pods := kubernetes.New(kubernetes.Options{Image: "debian:bookworm-slim", NodeImage: "example.org/this/program:v1"})
	box, err := pods.Open(ctx, sandbox.Spec{Dir: dir, MinIsolation: sandbox.IsolationContainer})
	if err != nil {
		log.Fatal(err)
	}
	defer box.Close()
	exit, err := box.Exec(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", "echo from $(pwd)"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", exit.Stdout.Bytes()) // from /workspace
}

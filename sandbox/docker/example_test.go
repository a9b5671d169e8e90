package docker_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/docker"
)

// A command in a container. The program must call docker.Reexec first.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	containers := docker.New(&docker.Options{Image: "debian:bookworm-slim"})
	box, err := containers.Open(ctx, sandbox.Spec{Dir: dir, MinIsolation: sandbox.IsolationContainer})
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

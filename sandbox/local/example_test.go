//go:build unix

package local_test

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
)

// A command runs in a directory, and its output file is read back. The program has called
// local.Reexec first in main.
func ExampleNew() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	ctx := context.Background()
	// MinIsolation accepts a host without Landlock; without it such a host is rejected.
	box, err := local.New(nil).Open(ctx, sandbox.Spec{Dir: dir, MinIsolation: sandbox.IsolationProcess})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer box.Close()

	exit, err := box.Exec(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", "echo hello | tee greeting; exit 3"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s %d %s", exit.Ended, exit.Code, exit.Stdout.Bytes())

	file, err := box.Files().Open(ctx, "greeting")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	fmt.Printf("%s%v\n", text, err)
	// Output:
	// exited 3 hello
	// hello
	// <nil>
}

// After a crash, the next process kills the processes of the last one.
func ExampleReap() {
	dirs, err := local.Reap(context.Background(), "")
	for _, dir := range dirs {
		fmt.Println("left:", dir)
	}
	fmt.Println(err)
}

package scripted_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/scripted"
)

// A command does its work, and its answer is lost.
func Example() {
	b := scripted.New(&scripted.Options{Faults: []scripted.Fault{{Kind: scripted.LostAnswer, Call: 2}}})
	dir, err := os.MkdirTemp("", "scripted-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	box, err := b.Open(ctx, sandbox.Spec{Dir: dir, MinIsolation: sandbox.IsolationProcess})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer box.Close()
	for range 3 {
		e, err := box.Exec(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", "echo x >> log; wc -l log"}})
		fmt.Printf("%s%s %t\n", e.Stdout.Bytes(), e.Ended, errors.Is(err, sandbox.ErrLost))
	}
	// Output:
	// 1 log
	// exited false
	//  true
	// 3 log
	// exited false
}

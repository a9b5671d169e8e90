package workspace_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/workspace"
)

// A directory is kept, changed, read by its head and brought back.
func Example() {
	ctx := context.Background()
	tmp, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(tmp)
	dir, fork := filepath.Join(tmp, "dir"), filepath.Join(tmp, "fork")
	if err := os.Mkdir(dir, 0o755); err != nil {
		fmt.Println(err)
		return
	}
	put := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "notes.txt"), []byte(text), 0o644); err != nil {
			fmt.Println(err)
		}
	}

	store := blob.NewMemory()
	put("one\ntwo\n")
	first, err := workspace.Snapshot(ctx, store, dir, blob.Digest{}, workspace.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	put("one\n2\nthree\n")
	second, err := workspace.Snapshot(ctx, store, dir, first, workspace.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}

	text, err := workspace.Read(ctx, store, second, "notes.txt")
	fmt.Printf("%s%v\n", text, err)
	fmt.Println(workspace.Restore(ctx, store, first, fork))
	text, err = os.ReadFile(filepath.Join(fork, "notes.txt"))
	fmt.Printf("%s%v\n", text, err)
	// Output:
	// one
	// 2
	// three
	// <nil>
	// <nil>
	// one
	// two
	// <nil>
}

// An agent's changes to its copy are applied to the original directory, unless the same
// files were changed there.
func ExamplePlan() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "plan")
	store := blob.NewMemory()
	heads := make([]blob.Digest, 2)
	for i, text := range []string{"draft", "final"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			fmt.Println(err)
			return
		}
		if heads[i], err = workspace.Snapshot(ctx, store, dir, blob.Digest{}, workspace.Limits{}); err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := os.WriteFile(name, []byte("another program's"), 0o644); err != nil {
		fmt.Println(err)
		return
	}
	p, err := workspace.NewPlan(ctx, store, heads[0], heads[1], nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Paths, p.Apply(ctx, dir))
	// Output:
	// [plan] workspace: changed in the directory meanwhile: plan; put them back or move them away, then apply again
}

package memory_test

import (
	"context"
	"fmt"
	"os"

	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/memory/local"
)

// A note is found by its words.
func ExampleStore() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	notes, err := local.Open(dir, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer notes.Close()
	ctx := context.Background()
	fmt.Println(notes.Write(ctx, "memory://user/preferences/colours", "Prefers a dark theme.", memory.Origin{Session: "s1"}))
	hits, err := notes.Find(ctx, memory.Query{Text: "which theme?"})
	fmt.Println(len(hits), hits[0].Snippet, err)
	// Output:
	// <nil>
	// 1 Prefers a dark theme. <nil>
}

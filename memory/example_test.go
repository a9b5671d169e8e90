package memory_test

import (
	"context"
	"fmt"

	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/memory"
)

// A note is found by its words.
func ExampleStore() {
	var notes memory.Store = notebook.New(nil) // nodes keep theirs in the streams of the fleet
	ctx := context.Background()
	fmt.Println(notes.Write(ctx, "memory://user/preferences/colours", "Prefers a dark theme.", memory.Origin{Session: "s1"}))
	hits, err := notes.Find(ctx, memory.Query{Text: "which theme?"})
	fmt.Println(len(hits), hits[0].Snippet, err)
	// Output:
	// <nil>
	// 1 Prefers a dark theme. <nil>
}

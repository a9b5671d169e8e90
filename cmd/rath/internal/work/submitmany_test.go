//go:build linux

package work

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestSilentInput: `submit --tasks -` ends when it is interrupted during a silence of
// its input, and so does the reader of the input.
func TestSilentInput(t *testing.T) {
	r, w := must.Pair(os.Pipe())(t)
	defer r.Close()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- (&taskFile{}).submit(ctx, r) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	stacks := make([]byte, 1<<20)
	if text := string(stacks[:runtime.Stack(stacks, true)]); strings.Contains(text, "work.readLines") {
		t.Errorf("a reader is left behind:\n%s", text)
	}
}

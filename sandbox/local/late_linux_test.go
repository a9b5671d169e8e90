package local_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
)

// TestLateReader: a command's output also reaches a reader that starts long after the
// command has ended, as on a busy machine.
func TestLateReader(t *testing.T) {
	t.Parallel()
	b, err := local.New(&local.Options{State: t.TempDir()}).Open(t.Context(), sandbox.Spec{Dir: t.TempDir()})
	must.Do(t, err)
	defer b.Close()
	var kept strings.Builder
	e, err := b.Exec(t.Context(), sandbox.Cmd{
		Argv: []string{"sh", "-c", "echo first; sleep 0.1; seq 10000"}, Output: 1 << 20, Offload: &late{w: &kept},
	})
	if err != nil || e.Ended != sandbox.Exited || e.Code != 0 {
		t.Fatalf("%+v, %v", e, err)
	}
	const want = len("first\n") + 48_894 // less than a pipe's capacity
	if got := string(e.Stdout.Bytes()); len(got) != want || got != kept.String() || e.Stdout.Total != int64(want) {
		t.Errorf("%d bytes came and %d were kept, want %d", len(got), kept.Len(), want)
	}
}

// late delays its first write until long after the command has ended.
type late struct {
	once sync.Once
	w    *strings.Builder
}

func (l *late) Write(p []byte) (int, error) {
	l.once.Do(func() { time.Sleep(1500 * time.Millisecond) })
	return l.w.Write(p)
}

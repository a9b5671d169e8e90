package node

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/sandbox/overlay"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestForksOfFormerProcess: a node unmounts and removes the directories of a killed
// process before it makes its own.
func TestForksOfFormerProcess(t *testing.T) {
	store := t.TempDir()
	work, forks := filepath.Join(store, "work", "t", "s", "1-1"), filepath.Join(store, "forks")
	lower, changes := filepath.Join(forks, "1"), filepath.Join(forks, "2")
	for _, d := range []string{work, lower, changes} {
		must.Do(t, os.MkdirAll(d, 0o700))
	}
	err := overlay.Mount(lower, changes, work)
	if errors.Is(err, overlay.ErrUnsupported) && os.Geteuid() != 0 {
		t.Skip(err)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(work, "file"), nil, 0o600)
	}
	must.Do(t, err)
	n := begin(t, &Options{Store: store, NATS: NATS{Level: "lazy"}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}).started(t)
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || strings.Contains(string(mounts), store) {
		t.Errorf("what a former process mounted is mounted, %v", err)
	}
	for _, d := range []string{filepath.Join(store, "work"), lower, changes} {
		if _, err := os.Stat(d); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there, %v", d, err)
		}
	}
	if n.runtime.Workspaces.Forks == nil {
		t.Error("forks are copied")
	}
}

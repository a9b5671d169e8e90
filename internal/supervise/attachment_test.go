package supervise_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/supervise"
)

// TestReadAttachmentOfNone reads what was left where no node can be reached:
// the reader then opens the store itself, or says why that fails.
func TestReadAttachmentOfNone(t *testing.T) {
	for name, text := range map[string]string{"no node": "", "half written": `{"url":`, "one that does not listen": `{"pid":1}`} {
		store := t.TempDir()
		if text != "" {
			if err := os.WriteFile(filepath.Join(store, "node.json"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if a, err := supervise.ReadAttachment(store); !errors.Is(err, client.ErrUnreachable) || a != (supervise.Attachment{}) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, store := range []string{filepath.Join(file, "store"), file, filepath.Join(file, "..", "none")} {
		if _, err := supervise.ReadAttachment(store); !errors.Is(err, client.ErrUnreachable) {
			t.Errorf("%s: %v", store, err)
		}
	}
}

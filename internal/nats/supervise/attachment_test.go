package supervise_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/nats/supervise"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestReadAttachmentOfNone reads leftovers in a store whose node cannot be reached: the
// reader then opens the store itself, or reports why that fails.
func TestReadAttachmentOfNone(t *testing.T) {
	for name, text := range map[string]string{"no node": "", "half written": `{"url":`, "one that does not listen": `{"pid":1}`} {
		store := t.TempDir()
		if text != "" {
			must.Do(t, os.WriteFile(filepath.Join(store, "node.json"), []byte(text), 0o600))
		}
		if a, err := supervise.ReadAttachment(store); !errors.Is(err, client.ErrUnreachable) || a != (supervise.Attachment{}) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	for _, store := range []string{filepath.Join(file, "store"), file, filepath.Join(file, "..", "none")} {
		if _, err := supervise.ReadAttachment(store); !errors.Is(err, client.ErrUnreachable) {
			t.Errorf("%s: %v", store, err)
		}
	}
}

// TestClearAttachment: after it no node is found, whatever node left the file.
func TestClearAttachment(t *testing.T) {
	store := t.TempDir()
	must.Do(t, (&supervise.Attachment{PID: 1, URL: "nats://127.0.0.1:4222"}).Write(store))
	for range 2 {
		must.Do(t, supervise.ClearAttachment(store))
		if a, err := supervise.ReadAttachment(store); !errors.Is(err, client.ErrUnreachable) {
			t.Errorf("%+v, %v", a, err)
		}
	}
}

// TestCopyOfStore: an attachment that was copied with the store of a running node leads to
// no node, because its tools would change the original store.
func TestCopyOfStore(t *testing.T) {
	store, copied := t.TempDir(), t.TempDir()
	must.Do(t, (&supervise.Attachment{URL: "nats://127.0.0.1:4222"}).Write(store))
	link := filepath.Join(t.TempDir(), "link")
	must.Do(t, os.Symlink(store, link))
	for _, same := range []string{store, link} {
		if a, err := supervise.ReadAttachment(same); err != nil || a.URL == "" {
			t.Errorf("at %s: %+v, %v", same, a, err)
		}
	}
	data, err := os.ReadFile(filepath.Join(store, "node.json"))
	if err == nil {
		err = os.WriteFile(filepath.Join(copied, "node.json"), data, 0o600)
	}
	must.Do(t, err)
	if a, err := supervise.ReadAttachment(copied); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("the copy leads to %+v, %v", a, err)
	}
}

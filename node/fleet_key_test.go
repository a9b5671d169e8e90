package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/cluster"
)

// TestGossipKeys: a file holds the key to send with, and after it keys that are
// accepted, so that a fleet changes its key without parting.
func TestGossipKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	read := func(text string) (*Gossip, error) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return gossipFrom("127.0.0.1", "", "", file, "")
	}
	a, b := cluster.NewKey(), cluster.NewKey()
	g, err := read(a.Text() + "\n")
	if err != nil || g.Key != a.Text() || len(g.AcceptKeys) != 0 {
		t.Fatalf("one key: %v", err)
	}
	g, err = read(b.Text() + "\n" + a.Text() + "\n")
	if err != nil || g.Key != b.Text() || len(g.AcceptKeys) != 1 || g.AcceptKeys[0] != a.Text() {
		t.Fatalf("two keys: %v", err)
	}
	for text, want := range map[string]string{"": "none", a.Text() + "\nc2hvcnQ=": file + ": key 2: "} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d bytes: %v, want %q", len(text), err, want)
		}
	}
}

package node

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rathcluster/rath/cluster"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// TestGossipKeys: a file holds the key to send with, followed by accepted keys, so that
// a fleet changes its key without parting.
func TestGossipKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	read := func(text string) (*Gossip, error) {
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
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

// TestGossipChangesItsKey: nodes that send with different keys are one fleet while each
// accepts the other's.
func TestGossipChangesItsKey(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t, &natsserver.Options{Port: -1})
	first := "127.0.0.1:" + strconv.Itoa(natstest.FreePort(t))
	former, next := cluster.NewKey().Text(), cluster.NewKey().Text()
	member(t, srv, Options{Fleet: Fleet{Gossip: &Gossip{Bind: first, Key: former, AcceptKeys: []string{next}}}})
	n := member(t, srv, Options{Fleet: Fleet{Gossip: &Gossip{Bind: "127.0.0.1:0", Join: []string{first}, Key: next, AcceptKeys: []string{former}}}})
	if all := n.fleet.members.List(); len(all) != 2 {
		t.Errorf("the second node knows %+v, want both", all)
	}
}

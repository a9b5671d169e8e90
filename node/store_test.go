package node

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/rathcluster/rath/internal/natsserver"
	"github.com/rathcluster/rath/internal/natstest"
)

// TestStoreOfAnotherNode gives the store of a node that lives to a second one, as
// two that are started in one directory have it: the second does not start, and
// the files of the first one's runs stay.
func TestStoreOfAnotherNode(t *testing.T) {
	srv := natstest.Start(t, &natsserver.Options{Port: -1})
	o := Options{NATS: srv.URL(), Level: "lazy", Store: t.TempDir()}
	o.User, o.Password = srv.Node()
	first := begin(t, &o).started(t)
	dir := filepath.Join(o.Store, "work", "acme", "s1", "1-1")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	second, err := Start(t.Context(), &o)
	if err == nil {
		err = second.Close()
		t.Errorf("a second node started over the store; it ended with %v", err)
	} else if !errors.Is(err, natsserver.ErrStoreInUse) {
		t.Errorf("the second node did not start: %v", err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("the files of the first one: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	begin(t, &o).started(t)
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the next node of the store found what the first one left: %v", err)
	}
}

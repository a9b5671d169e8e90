package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// storeDir returns the directory of a node's server.
func storeDir(store string) string { return filepath.Join(store, "nats") }

// makeStore creates the directory of a store, with a file that makes git ignore all of
// it: the store often lies in a repository, and holds keys and transcripts. An existing
// file of that name stays.
func makeStore(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, ".gitignore"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString("*\n")
	return errors.Join(err, f.Close())
}

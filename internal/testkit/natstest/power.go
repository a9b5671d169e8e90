package natstest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/rathcluster/rath/internal/nats/natsserver"
)

// Power is a store whose power can be cut without a separate disk: it keeps a copy of the
// synced data.
type Power struct {
	// Store is the directory of the server.
	Store string
	tb    testing.TB
	disk  string
	mu    sync.Mutex
}

// NewPower makes an empty one.
func NewPower(tb testing.TB) *Power { return &Power{Store: tb.TempDir(), tb: tb, disk: tb.TempDir()} }

// Options are for the server that is to lose its power.
func (p *Power) Options() *natsserver.Options {
	return &natsserver.Options{StoreDir: p.Store, SyncFile: p.sync}
}

// sync copies the contents of a file, or the names in a directory without their contents.
func (p *Power) sync(path string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	rel, err := filepath.Rel(p.Store, path)
	if err != nil {
		return err
	}
	to := filepath.Join(p.disk, rel)
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o700)
		}
		if err == nil {
			err = os.WriteFile(to, data, 0o600)
		}
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	kept, err := os.ReadDir(to)
	for _, e := range kept {
		if _, gone := os.Lstat(filepath.Join(path, e.Name())); errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(to, e.Name())))
		}
	}
	return err
}

// Cut returns a directory with the data that a power cut at this moment would leave.
func (p *Power) Cut() string {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	left, from := p.tb.TempDir(), p.disk
	if runtime.GOOS != "linux" {
		from = p.Store // its server syncs each write by itself
	}
	if err := os.CopyFS(left, os.DirFS(from)); err != nil {
		p.tb.Fatalf("cut the power: %v", err)
	}
	return left
}

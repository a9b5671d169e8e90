package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/nats/archive"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// smallTree is the maximum size in bytes of a tree's commits, and of its blobs, for a tree
// that is archived beside others: a tree is in memory while it is archived. Larger trees
// are archived one at a time.
const smallTree = 4 << 20

// archive writes the archive of a fenced tree and reads it back, or finds that
// it was written before. It returns its size.
func (p *pruning) archive(ctx context.Context, t *archive.Tree, name string) (int64, error) {
	info, err := os.Stat(name)
	if written := err == nil; t.Bytes <= smallTree && (!written || info.Size() <= 2*smallTree) {
		size, err := p.archiveWithin(ctx, t, name, min(smallTree, p.o.Limit))
		if !errors.Is(err, dossier.ErrTooLarge) {
			return size, err
		}
	}
	p.large.Lock()
	defer p.large.Unlock()
	return p.archiveWithin(ctx, t, name, p.o.Limit)
}

// archiveWithin is archive for a tree of at most limit bytes of commits, and as many of
// blobs. For a larger one it returns dossier.ErrTooLarge, before it writes anything.
func (p *pruning) archiveWithin(ctx context.Context, t *archive.Tree, name string, limit int64) (int64, error) {
	heads := map[session.ID]session.Hash{}
	var ids []session.ID
	for _, s := range t.Sessions {
		heads[s.ID] = s.At.Hash
		ids = append(ids, s.ID)
	}
	size, err := verified(name, heads)
	if err == nil {
		p.dropParts(name)
		return size, nil
	}
	if _, purged := marks(t); purged > 0 {
		// The purged part cannot be written again.
		return 0, fmt.Errorf("retention: tree %s is purged in part, and its archive %s does not serve: %w; name the directory where it is", t.Root, name, err)
	}
	tree, err := dossier.CollectTree(ctx, p.c.Logs.Log(), p.c.Logs.Blobs(t.Tenant), session.Key{Tenant: t.Tenant, ID: t.Root}, ids, &dossier.CollectOptions{
		Stated: p.o.Stated, Commits: limit, Blobs: limit,
		Signatures: func(ctx context.Context, id run.ID) ([]dossier.Signature, error) {
			r, _, err := p.c.Projections.Stored(ctx, t.Tenant, id)
			if err != nil || r.Signature == "" {
				return nil, err
			}
			return []dossier.Signature{{Statement: r.Statement, Signature: r.Signature}}, nil
		},
	})
	if err != nil {
		return 0, err
	}
	data, err := tree.Encode()
	if err != nil {
		return 0, err
	}
	if n, most := int64(len(data)), 2*limit; n > most {
		return 0, fmt.Errorf("%w: its file would have %d bytes, and one of more than %d is not read back", dossier.ErrTooLarge, n, most)
	}
	written := p.write(name, data)
	if written != nil && !errors.Is(written, fs.ErrNotExist) {
		return 0, fmt.Errorf("retention: write %s: %w", name, written)
	}
	size, err = verified(name, heads)
	switch {
	case err != nil && written != nil:
		return 0, fmt.Errorf("retention: write %s: %w", name, written)
	case err != nil:
		return 0, fmt.Errorf("retention: %s does not read as it was written: %w", name, err)
	}
	// If written is an error, another prune was first and removed this one's file.
	p.dropParts(name)
	return size, p.step("archive")
}

// verified checks that a file is the archive of sessions that end with these
// heads, and no others.
func verified(name string, heads map[session.ID]session.Hash) (int64, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	tree, _, err := dossier.VerifyTree(data, &dossier.VerifyOptions{Heads: heads})
	if err == nil && len(tree.Logs) != len(heads) {
		err = fmt.Errorf("it holds %d sessions, the tree has %d", len(tree.Logs), len(heads))
	}
	return int64(len(data)), err
}

// write makes a file durable before it renames it to its final name. It removes a file that
// could not be written completely. No other prune writes to the same temporary file. A
// prune that is at the same point of the same tree replaces the archive by its own, which
// holds the same sessions.
func (p *pruning) write(name string, data []byte) error {
	tmp := name + "." + p.o.part + partSuffix
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := fill(f, data); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := p.step("write"); err != nil {
		return err
	}
	if err := os.Rename(tmp, name); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := p.step("rename"); err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

// partSuffix ends the names of files while they are written.
const partSuffix = ".part"

// partAge is the age from which a partial file of another prune counts as abandoned: far
// longer than writing one takes.
const partAge = time.Hour

// partsIn lists the partial files in a directory, by their archives. It reads the directory
// once: with a read for each archive, the time of a prune would grow with the square of
// their number.
func partsIn(dir string) map[string][]string {
	parts := map[string][]string{}
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		whole, isPart := strings.CutSuffix(f.Name(), partSuffix)
		if name := strings.TrimSuffix(whole, filepath.Ext(whole)); isPart && name != "" {
			parts[filepath.Join(dir, name)] = append(parts[filepath.Join(dir, name)], filepath.Join(dir, f.Name()))
		}
	}
	return parts
}

// dropParts removes the partial files that killed prunes left of a complete archive. A
// prune that is about to replace the archive by its own file finds that it need not. The
// next prune removes files that this one cannot.
func (p *pruning) dropParts(name string) {
	for _, part := range p.parts[name] {
		_ = os.Remove(part)
	}
}

// dropOldParts removes the partial files that killed prunes left, of any archive. now is
// the file system's own time.
func dropOldParts(dir string, now time.Time) {
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		ours := strings.HasPrefix(f.Name(), ".rath-") || strings.Contains(f.Name(), ".json.")
		if info, err := f.Info(); ours && err == nil && strings.HasSuffix(f.Name(), partSuffix) && now.Sub(info.ModTime()) > partAge {
			_ = os.Remove(filepath.Join(dir, f.Name()))
		}
	}
}

// fill writes a file, makes it durable and closes it. The first error is the cause of the
// later ones.
func fill(f *os.File, data []byte) error {
	_, err := f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return cmp.Or(err, f.Close())
}

// writable returns an error if archives cannot be written to a directory. It creates the
// directory if absent, and removes old partial files.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".rath-*"+partSuffix)
	if err != nil {
		return err
	}
	err = fill(f, make([]byte, 4<<10))
	if info, statErr := os.Stat(f.Name()); err == nil && statErr == nil {
		dropOldParts(dir, info.ModTime())
	}
	return errors.Join(err, os.Remove(f.Name()), syncDir(dir))
}

// syncDir makes the names in a directory durable, if the system supports that.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, fs.ErrInvalid) || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrPermission) {
		err = nil // not on this system
	}
	return errors.Join(err, d.Close())
}

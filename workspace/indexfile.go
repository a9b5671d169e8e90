package workspace

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rathcluster/rath/blob"
)

const (
	// indexFormat is the prefix of an index file and identifies its format.
	indexFormat = "rath index 2\n"
	// maxIndexFile is the maximum size of an index file, in bytes.
	maxIndexFile = 64 << 20
	// maxIndexFiles is the maximum number of index files in a folder; the oldest are removed.
	maxIndexFiles = 64
	// minIndexed is a lower bound of a file's encoded size.
	minIndexed = 37
)

// loadIndex returns the index of a directory that save wrote to a folder, which need not
// exist. It returns an empty index if the file is damaged, has another format, or belongs
// to another directory or user. It returns nil if folder is "".
func loadIndex(folder, dir string) *index {
	if folder == "" {
		return nil
	}
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return nil // Import reports the error of the directory
	}
	x := &index{name: filepath.Join(folder, blob.Sum([]byte(abs)).String()), dir: abs}
	if data, ok := readIndexFile(x.name); ok {
		x.decode(data)
	}
	return x
}

// readIndexFile reads a regular file of this user.
func readIndexFile(name string) ([]byte, bool) {
	fi, err := os.Lstat(name)
	if err != nil || !fi.Mode().IsRegular() || !ownedByUser(fi) || fi.Size() > maxIndexFile {
		return nil, false
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxIndexFile+1))
	return data, err == nil && len(data) <= maxIndexFile
}

// save writes the index atomically to its folder, readable only by this user, if the index
// has changed. It removes the oldest indexes of the folder beyond a limit. It removes an
// index that would be too large.
func (x *index) save() error {
	if x == nil || x.name == "" || !x.dirty {
		return nil
	}
	folder := filepath.Dir(x.name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("workspace: index: %w", err)
	}
	data := x.encode()
	if len(data) > maxIndexFile {
		if err := os.Remove(x.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("workspace: index: %w", err)
		}
		return nil
	}
	f, err := os.CreateTemp(folder, "new-*") // of mode 0600
	if err != nil {
		return fmt.Errorf("workspace: index: %w", err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), x.name)
	}
	if err != nil {
		return fmt.Errorf("workspace: index: %w", errors.Join(err, os.Remove(f.Name())))
	}
	x.dirty = false
	return prune(folder)
}

// prune removes the oldest files of a folder of indexes.
func prune(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) <= maxIndexFiles {
		return err
	}
	var files []fs.FileInfo
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && fi.Mode().IsRegular() {
			files = append(files, fi)
		}
	}
	slices.SortFunc(files, func(a, z fs.FileInfo) int { return z.ModTime().Compare(a.ModTime()) })
	for _, fi := range files[min(maxIndexFiles, len(files)):] {
		// Another process may have removed it.
		if err := os.Remove(filepath.Join(folder, fi.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// encode encodes the index: the format, the directory, the stores, the files, and the
// digest of all of these. Numbers are varints; texts have a length prefix.
func (x *index) encode() []byte {
	b := make([]byte, 0, 128*len(x.files)+512)
	b = append(b, indexFormat...)
	b = appendText(b, x.dir)
	b = binary.AppendUvarint(b, uint64(len(x.stores)))
	for _, name := range slices.SortedFunc(maps.Keys(x.stores), compareDigests) {
		k := x.stores[name]
		b = append(append(b, name[:]...), k.head[:]...)
		b = binary.AppendVarint(b, k.at.UnixNano())
	}
	b = binary.AppendUvarint(b, uint64(len(x.files)))
	for _, p := range slices.Sorted(maps.Keys(x.files)) {
		e := x.files[p]
		b = appendText(b, p)
		b = binary.AppendVarint(b, e.size)
		b = binary.AppendVarint(b, e.mtime)
		b = binary.AppendVarint(b, e.ctime)
		b = binary.AppendUvarint(b, e.inode)
		b = binary.AppendUvarint(b, uint64(e.mode))
		b = append(b, e.digest[:]...)
	}
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

func compareDigests(a, z blob.Digest) int { return bytes.Compare(a[:], z[:]) }

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decode decodes the output of encode for the same directory, or leaves the index empty.
func (x *index) decode(data []byte) {
	body, whole := bytes.CutPrefix(data, []byte(indexFormat))
	n := len(data) - sha256.Size
	if !whole || n < len(indexFormat) {
		return
	}
	if sum := sha256.Sum256(data[:n]); !bytes.Equal(sum[:], data[n:]) {
		return
	}
	r := &indexReader{rest: body[:len(body)-sha256.Size]}
	if r.text() != x.dir {
		return
	}
	stores := map[blob.Digest]kept{}
	for range min(r.uvarint(), maxKept) {
		name := r.digest()
		stores[name] = kept{head: r.digest(), at: time.Unix(0, r.varint())}
	}
	count := r.uvarint()
	files := make(map[string]indexed, min(count, uint64(len(r.rest)/minIndexed)))
	for i := uint64(0); i < count && !r.bad; i++ {
		p := r.text()
		st := stamp{size: r.varint(), mtime: r.varint(), ctime: r.varint(), inode: r.uvarint(), mode: uint32(r.uvarint())}
		files[p] = indexed{stamp: st, digest: r.digest()}
	}
	if !r.bad && len(r.rest) == 0 {
		x.stores, x.files = stores, files
	}
}

// indexReader reads consecutive values. After a failed read it is bad and returns zero
// values.
type indexReader struct {
	rest []byte
	bad  bool
}

func (r *indexReader) take(n uint64) []byte {
	if r.bad = r.bad || n > uint64(len(r.rest)); r.bad {
		return nil
	}
	out := r.rest[:n]
	r.rest = r.rest[n:]
	return out
}

func (r *indexReader) text() string { return string(r.take(r.uvarint())) }

func (r *indexReader) digest() (d blob.Digest) {
	copy(d[:], r.take(uint64(len(d))))
	return d
}

func (r *indexReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	r.take(uint64(cmp.Or(max(n, 0), len(r.rest)+1)))
	return v
}

func (r *indexReader) varint() int64 {
	v, n := binary.Varint(r.rest)
	r.take(uint64(cmp.Or(max(n, 0), len(r.rest)+1)))
	return v
}

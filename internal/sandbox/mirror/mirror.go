package mirror

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/rathcluster/rath/sandbox"
)

// transferPatience bounds one scan and its transfer.
const transferPatience = 10 * time.Minute

// Mirror synchronizes two trees. Its methods may be called concurrently.
type Mirror struct {
	// Beside reports that processes change the remote files also between commands of Exec.
	// It is set before the first command.
	Beside bool

	here, there side
	limits      Limits

	mu     sync.Mutex
	known  map[string]*known // by path: the entries that both sides have
	broken error             // why the mirror can no longer work
}

// known is an entry that was the same on both sides at the last scan.
type known struct {
	kind   Kind
	exec   bool
	target string
	sum    [sha256.Size]byte
	marks  [2]mark
}

// mark is the stamp of a file on one side.
type mark struct {
	stamp   string
	settled bool
}

// side is a tree, with the index of its marks.
type side struct {
	Tree
	n int
}

// New returns a mirror of two trees. The tree there is empty. The caller closes the trees.
func New(here, there Tree, l Limits) *Mirror {
	return &Mirror{here: side{here, 0}, there: side{there, 1}, limits: l.orDefault(), known: make(map[string]*known)}
}

// Exec runs a command there with the files of here, and copies the command's changes back.
// It returns the result of run. If the tree exceeds the limits afterwards, the command ends
// as sandbox.DiskFull and its changes stay there until a later command frees space. After a
// failure of the mirror, every call returns sandbox.ErrLost.
//
// Commands may run concurrently. The caller orders commands that change files.
func (m *Mirror) Exec(ctx context.Context, run func(context.Context) (sandbox.Exit, error)) (sandbox.Exit, error) {
	if ctx.Err() == nil {
		// A step that has begun is completed even if the caller loses interest.
		if err := m.send(ctx); err != nil {
			return sandbox.Exit{}, err
		}
	}
	e, err := run(ctx)
	if errors.Is(err, sandbox.ErrLost) || errors.Is(err, sandbox.ErrClosed) {
		return e, err
	}
	bring := m.take(ctx)
	if full, ok := errors.AsType[*FullError](bring); ok {
		note := "killed: " + full.Error() + "; remove unneeded files\n"
		if e.Code == 0 {
			e.Code = 128 + 9
		}
		e.Ended, e.Stderr.Tail = sandbox.DiskFull, append(e.Stderr.Tail, note...)
		e.Stderr.Total += int64(len(note))
		return e, err
	}
	return e, errors.Join(err, bring)
}

// Sync synchronizes both sides between commands if Beside is set. A tree over the limits is
// not an error: it stays there, and the next command reports it.
func (m *Mirror) Sync(ctx context.Context) error {
	if !m.Beside {
		return nil
	}
	err := m.take(ctx)
	if _, full := errors.AsType[*FullError](err); full {
		return nil
	}
	return err
}

// send copies the files of here to there before a command.
func (m *Mirror) send(ctx context.Context) error {
	if m.Beside {
		err := m.take(ctx)
		if _, full := errors.AsType[*FullError](err); !full {
			return err
		}
		// The command may free the space.
	}
	return m.step(ctx, func(ctx context.Context) error { return m.bring(ctx, m.here, m.there) })
}

// take copies the files of there to here after a command.
func (m *Mirror) take(ctx context.Context) error {
	if m.Beside {
		return m.step(ctx, m.exchange)
	}
	return m.step(ctx, func(ctx context.Context) error { return m.bring(ctx, m.there, m.here) })
}

// bring makes one side equal to the other one. m.mu is held.
func (m *Mirror) bring(ctx context.Context, from, to side) error {
	d, err := m.look(ctx, from)
	if err == nil {
		err = m.transfer(ctx, from, to, d)
	}
	return err
}

// step runs a step that synchronizes both sides. After a failed step no more steps run.
func (m *Mirror) step(ctx context.Context, do func(context.Context) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken != nil {
		return m.broken
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), transferPatience)
	defer cancel()
	err := do(ctx)
	if _, full := errors.AsType[*FullError](err); err == nil || full {
		return err
	}
	m.broken = fmt.Errorf("%w: the files of the sandbox and those of this host cannot be kept the same: %w", sandbox.ErrLost, err)
	return m.broken
}

// difference is the set of changes to make on the other side.
type difference struct {
	list    []Entry // all entries of the side
	remove  []string
	changed []Entry // sorted by path
	bytes   int64   // of all files, as listed
}

// look lists a side and compares it with the known entries.
func (m *Mirror) look(ctx context.Context, s side) (d difference, err error) {
	var ask []string
	for p, k := range m.known {
		if k.kind == File && !k.marks[s.n].settled {
			ask = append(ask, p)
		}
	}
	list, err := s.List(ctx, ask)
	if err == nil {
		err = check(list, m.limits)
	}
	if err != nil {
		return d, err
	}
	d.list = list
	there := make(map[string]bool, len(list))
	for _, e := range list {
		there[e.Path] = true
		d.bytes += e.Size
		k := m.known[e.Path]
		switch {
		case k == nil:
			d.changed = append(d.changed, e)
		case k.kind != e.Kind:
			d.remove, d.changed = append(d.remove, e.Path), append(d.changed, e)
		case !k.same(e, s.n):
			d.changed = append(d.changed, e)
		}
	}
	for p := range m.known {
		if !there[p] && (path.Dir(p) == "." || there[path.Dir(p)]) {
			d.remove = append(d.remove, p)
		}
	}
	slices.Sort(d.remove)
	return d, nil
}

// same reports whether an entry of this kind is unchanged, and records a file's stamp.
func (k *known) same(e Entry, side int) bool {
	if e.Kind != File {
		return k.target == e.Target
	}
	now := mark{e.Stamp, e.Settled}
	if k.exec != e.Exec {
		return false
	}
	if was := k.marks[side]; was.settled && was.stamp == now.stamp {
		return true
	}
	if e.Sum != k.sum {
		return false
	}
	k.marks[side] = now
	return true
}

// transfer applies the changes of a side to the other one.
func (m *Mirror) transfer(ctx context.Context, from, to side, d difference) error {
	if len(d.remove) == 0 && len(d.changed) == 0 {
		return nil
	}
	f := &filter{todo: make(map[string]*passed), spare: m.limits.Bytes - d.bytes}
	var names []string
	for _, e := range d.changed {
		if e.Kind == File {
			f.todo[e.Path] = &passed{Entry: e}
			names = append(names, e.Path)
		} else {
			f.plain = append(f.plain, e)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	fetched, fetch := io.Pipe()
	sent, send := io.Pipe()
	var wg sync.WaitGroup
	var fetchErr, filterErr error
	wg.Go(func() {
		if len(names) > 0 {
			fetchErr = from.Fetch(ctx, names, fetch)
		}
		fetch.CloseWithError(fetchErr)
	})
	wg.Go(func() {
		filterErr = f.run(fetched, send, len(names) > 0)
		fetched.CloseWithError(filterErr)
		send.CloseWithError(filterErr)
	})
	wrote, sendErr := to.Send(ctx, d.remove, sent)
	sent.CloseWithError(errors.Join(errors.New("the other side takes no more"), sendErr))
	cancel()
	wg.Wait()
	// Each one stops the others, and their errors include the error that stopped them.
	if err := cmp.Or(filterErr, sendErr, fetchErr); err != nil {
		return err
	}
	m.learn(d, f, from, to, wrote)
	return nil
}

// learn records the entries that both sides have now.
func (m *Mirror) learn(d difference, f *filter, from, to side, wrote []Entry) {
	for _, p := range d.remove {
		delete(m.known, p)
	}
	if len(d.remove) > 0 { // with all entries below
		maps.DeleteFunc(m.known, func(p string, _ *known) bool { return m.gone(path.Dir(p)) })
	}
	for _, e := range f.plain {
		m.known[e.Path] = &known{kind: e.Kind, target: e.Target}
	}
	for p, e := range f.todo {
		if !e.done {
			continue // it was removed before it was read
		}
		k := &known{kind: File, exec: e.exec, sum: e.sum}
		k.marks[from.n] = mark{e.Stamp, e.Settled}
		m.known[p] = k
	}
	for _, e := range wrote {
		if p := f.todo[e.Path]; p != nil && p.done {
			m.known[e.Path].marks[to.n] = mark{e.Stamp, e.Settled}
		}
	}
}

// gone reports whether a directory, or one above it, is no longer known.
func (m *Mirror) gone(dir string) bool {
	for ; dir != "."; dir = path.Dir(dir) {
		if k := m.known[dir]; k == nil || k.kind != Dir {
			return true
		}
	}
	return false
}

// filter checks a stream of files against the listing: it passes on each requested file
// once, and no larger than the limits allow. Directories, links and special files come from
// the listing, which has been checked.
type filter struct {
	plain []Entry
	todo  map[string]*passed
	spare int64 // bytes by which files may have grown
}

// passed is a file in transfer.
type passed struct {
	Entry
	done bool
	exec bool
	sum  [sha256.Size]byte
}

func (f *filter) run(from io.Reader, to io.Writer, files bool) error {
	w := newWriter(to)
	for _, e := range f.plain {
		w.entry(e)
	}
	for r := newReader(from); files; {
		e, err := r.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		p := f.todo[e.Path]
		if p == nil || p.done || e.Kind != File {
			return fmt.Errorf("%w: %.100q comes and was not asked for", errStream, e.Path)
		}
		if err := f.file(p, e, r, w); err != nil {
			return err
		}
	}
	w.end(nil)
	return w.flush()
}

func (f *filter) file(p *passed, e Entry, r *reader, w *writer) error {
	w.file(Entry{Path: e.Path, Kind: File, Exec: e.Exec, Size: p.Size})
	sum, left := sha256.New(), p.Size
	take := func(n int64) error {
		if left -= n; left < 0 {
			f.spare, left = f.spare+left, 0
		}
		if f.spare < 0 {
			return fmt.Errorf("%q grows beyond the limit of a sandbox's files", e.Path)
		}
		return nil
	}
	err := r.content(
		func(data []byte) error {
			if err := take(int64(len(data))); err != nil {
				return err
			}
			sum.Write(data)
			w.chunk(data)
			return nil
		},
		func(n int64) error {
			if err := take(n); err != nil {
				return err
			}
			w.hole(n)
			return addZeros(sum, n)
		},
	)
	if err != nil {
		return err
	}
	w.close()
	p.done, p.exec, p.sum = true, e.Exec, [sha256.Size]byte(sum.Sum(nil))
	return nil
}

func addZeros(h hash.Hash, n int64) error {
	for n > 0 {
		k, err := h.Write(zeros[:min(n, chunk)])
		if err != nil {
			return err
		}
		n -= int64(k)
	}
	return nil
}

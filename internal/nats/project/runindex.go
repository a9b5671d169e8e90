package project

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"time"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// runIndex finds runs by their data without a read of the history: the columns of all
// tenants, as of a message of LINEAGE. A list that needs it reads the messages since then.
// The index is a cache: it decides about no run, because the found runs are tested on
// their records. It has no more rows than LINEAGE has messages, which bounds it by the
// retention.
type runIndex struct {
	c    *Projections
	gate chan struct{} // held by its user

	loaded  bool // the file was read
	tenants map[session.Tenant]*lineage.Columns
	at      *lineage.Cursor // behind the read records
	unsaved uint64          // messages since the last save
}

const (
	// indexFor bounds how long one list reads for the index, and waits for another list
	// that does.
	indexFor = 2 * time.Second
	// indexSave is how many messages are read before the file is written again.
	indexSave = 1 << 16
	// Runs in a stretch of LINEAGE with at most indexDense messages for each are read
	// together: one run that is read alone takes three requests.
	indexDense = 16
	// indexMore is how many runs more than a page has are looked at, because a few of the
	// found ones do not match.
	indexMore = 64
)

func newRunIndex(c *Projections) *runIndex {
	x := &runIndex{c: c, gate: make(chan struct{}, 1)}
	x.reset()
	return x
}

func (x *runIndex) reset() {
	x.tenants, x.at = map[session.Tenant]*lineage.Columns{}, &lineage.Cursor{}
}

func (x *runIndex) columns(t session.Tenant) *lineage.Columns {
	if x.tenants[t] == nil {
		x.tenants[t] = &lineage.Columns{Apart: wire.WorkflowNotify}
	}
	return x.tenants[t]
}

// enter waits until the index is free. It returns false if it is not in time.
func (x *runIndex) enter(ctx context.Context) bool {
	late := time.NewTimer(indexFor)
	defer late.Stop()
	select {
	case x.gate <- struct{}{}:
		return true
	case <-late.C:
	case <-ctx.Done():
	}
	return false
}

func (x *runIndex) leave() { <-x.gate }

// search returns the runs that may be rows of a page: a few more than the page has, and
// more reports whether there are others. behind is the number of messages of LINEAGE that
// the index lacks; then it returns no runs.
func (x *runIndex) search(ctx context.Context, h *history, before uint64, limit int, o *Choice) (found []lineage.Found, more bool, behind uint64, err error) {
	if !x.enter(ctx) {
		return nil, false, max(h.last-min(h.first, h.last), 1), ctx.Err()
	}
	defer x.leave()
	if behind, err = x.advance(ctx, h); err != nil || behind > 0 {
		return nil, false, behind, err
	}
	s := &lineage.Sieve{Where: o.Where, States: o.States, Workflow: o.Workflow, Now: o.Now, Apart: o.apart()}
	for f := range x.columns(h.tenant).Search(s, h.first, h.until(before)+1) {
		// A page ends between messages, and has all runs without one.
		if n := len(found); n >= limit+indexMore && f.At != found[n-1].At {
			return found, true, 0, nil
		}
		found = append(found, f)
	}
	return found, false, 0, nil
}

// advance reads LINEAGE up to the end of a history, and returns how many messages it lacks
// when its time is over.
func (x *runIndex) advance(ctx context.Context, h *history) (behind uint64, err error) {
	if !x.loaded {
		x.load()
		x.loaded = true
	}
	if err := x.verify(ctx, h); err != nil {
		return 0, err
	}
	end := time.Now().Add(indexFor)
	for m, err := range x.c.messages.UpTo(ctx, streams.StreamLineage, everything, max(x.at.At().Seq, h.first-1), h.last) {
		if err != nil {
			return 0, fmt.Errorf("nats/project: read lineage: %w", err)
		}
		records, _ := lineage.DecodeStored(m.Data) // none of a message of a later release
		for i := range records {
			r := &records[i]
			x.columns(r.Tenant).Add(m.Seq, r, x.at.Take(r))
		}
		x.at.Move(storedAt(m))
		x.unsaved++
		if time.Now().After(end) && m.Seq < h.last {
			behind = h.last - m.Seq
			break
		}
	}
	for _, c := range x.tenants {
		c.Trim(h.first)
	}
	if x.unsaved >= indexSave {
		x.unsaved = 0
		if err := x.save(); err != nil {
			x.c.conn.Logger.Warn("the index of runs is not kept in its file; the next start reads the history again", "file", x.c.RunsFile, "err", err)
		}
	}
	return behind, nil
}

// verify begins anew if LINEAGE lost its end, and has other messages at the sequences that
// were read, and if half of the rows or more are of runs that LINEAGE has dropped.
func (x *runIndex) verify(ctx context.Context, h *history) error {
	at, rows := x.at.At(), uint64(0)
	for _, c := range x.tenants {
		rows += uint64(c.Len()) //nolint:gosec // not negative
	}
	if at.Seq == 0 {
		return nil
	}
	is, err := x.c.storedAt(ctx, at.Seq)
	if err != nil {
		return err
	}
	lost := is != at
	if lost && is.Time == 0 { // perhaps its tree was purged
		end, err := x.c.messages.LastSequence(ctx, streams.StreamLineage)
		if err != nil {
			return err
		}
		lost = end < at.Seq
	}
	if lost || rows > 2*h.messages+indexMore {
		x.reset()
	}
	return nil
}

// forget removes runs without records.
func (x *runIndex) forget(ctx context.Context, t session.Tenant, gone []lineage.Found) {
	if len(gone) == 0 || !x.enter(ctx) {
		return
	}
	defer x.leave()
	for _, f := range gone {
		x.columns(t).Forget(f)
	}
}

// indexHead is the first line of the file. The columns of the tenants follow, in its order,
// and a digest.
type indexHead struct {
	Version int           `json:"version"`
	Seq     uint64        `json:"seq"`
	Time    int64         `json:"time"`
	Cursor  string        `json:"cursor"`
	Tenants []indexTenant `json:"tenants"`
}

type indexTenant struct {
	Tenant session.Tenant `json:"tenant"`
	Rows   int            `json:"rows"`
}

// indexVersion changes with the layout of the columns.
const indexVersion = 1

// save writes the file, if there is one.
func (x *runIndex) save() error {
	if x.c.RunsFile == "" {
		return nil
	}
	next := x.c.RunsFile + ".next"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = x.write(f)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(next, x.c.RunsFile)
	}
	return err
}

func (x *runIndex) write(w io.Writer) error {
	at := x.at.At()
	head := indexHead{Version: indexVersion, Seq: at.Seq, Time: at.Time, Cursor: x.at.String()}
	for t, c := range x.tenants {
		head.Tenants = append(head.Tenants, indexTenant{t, c.Len()})
	}
	line, err := json.Marshal(head)
	if err != nil {
		return err
	}
	sum, to := sha256.New(), bufio.NewWriter(w)
	all := io.MultiWriter(to, sum)
	_, err = all.Write(append(line, '\n'))
	for _, t := range head.Tenants {
		err = errors.Join(err, x.tenants[t.Tenant].Write(all))
	}
	_, last := to.Write(sum.Sum(nil))
	return errors.Join(err, last, to.Flush())
}

// load reads the file. A missing or damaged one leaves the index empty.
func (x *runIndex) load() {
	if x.c.RunsFile == "" {
		return
	}
	f, err := os.Open(x.c.RunsFile)
	if err == nil {
		err = errors.Join(x.read(f), f.Close())
	}
	if err != nil {
		x.reset()
		if !errors.Is(err, os.ErrNotExist) {
			x.c.conn.Logger.Warn("the file of the index of runs is not usable, and the history is read again", "file", x.c.RunsFile, "err", err)
		}
	}
}

var errIndexFile = errors.New("nats/project: not an index of runs")

func (x *runIndex) read(r io.Reader) error {
	in := &summed{bufio.NewReader(r), sha256.New()}
	line, err := in.r.ReadBytes('\n')
	in.sum.Write(line)
	var head indexHead
	if err != nil || json.Unmarshal(line, &head) != nil || head.Version != indexVersion {
		return errIndexFile
	}
	if x.at, err = lineage.ParseCursor(head.Cursor); err != nil {
		return err
	}
	for _, t := range head.Tenants {
		if err := x.columns(t.Tenant).Read(in, t.Rows); err != nil {
			return err
		}
	}
	sum := in.sum.Sum(nil)
	if last, err := io.ReadAll(in.r); err != nil || !slices.Equal(last, sum) {
		return errIndexFile
	}
	return nil
}

// summed computes the digest of the bytes that are read.
type summed struct {
	r   *bufio.Reader
	sum hash.Hash
}

func (s *summed) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.sum.Write(p[:n])
	return n, err
}

// List returns a page of the runs as Runs does. A choice of few runs is read run by run,
// once the index of runs has caught up; behind is the number of messages that it lacks
// until then.
func (h *history) List(ctx context.Context, before uint64, limit int, o Choice) (rows []Listed, next, behind uint64, err error) {
	if len(o.States) == 0 && o.Workflow == "" && !o.Where.Narrows() {
		rows, next, err = h.Runs(ctx, before, limit, o)
		return rows, next, 0, err
	}
	found, more, behind, err := h.c.index.search(ctx, h, before, limit, &o)
	if err != nil {
		return nil, 0, 0, err
	}
	if n := len(found); behind > 0 || n > 0 && h.until(before)-found[n-1].At < uint64(n)*indexDense {
		rows, next, err = h.Runs(ctx, before, limit, o)
		return rows, next, behind, err
	}
	rows, next, err = h.each(ctx, limit, o, found, more)
	return rows, next, 0, err
}

// each returns the found runs that match, and where to continue.
func (h *history) each(ctx context.Context, limit int, o Choice, found []lineage.Found, more bool) (rows []Listed, next uint64, err error) {
	l := runList{history: h, Choice: o, read: map[session.ID]*lineage.Graph{}, back: map[session.ID]bool{}, told: map[run.ID]bool{}}
	var gone []lineage.Found
	defer func() { h.c.index.forget(ctx, h.tenant, gone) }()
	for i, f := range found {
		if i > 0 && len(l.rows) >= limit && f.At != found[i-1].At {
			return l.rows, found[i-1].At, nil
		}
		s, ok, err := l.submissionOf(ctx, f)
		if ok {
			err = l.one(ctx, s)
		} else if err == nil {
			gone = append(gone, f)
		}
		if err != nil {
			return nil, 0, err
		}
	}
	if more {
		next = found[len(found)-1].At
	}
	return l.rows, next, nil
}

// submissionOf reads which run was found; ok is false if LINEAGE has dropped it.
func (l *runList) submissionOf(ctx context.Context, f lineage.Found) (s submission, ok bool, err error) {
	m, err := l.c.messages.LeaderAt(ctx, streams.StreamLineage, f.Last)
	if errors.Is(err, conn.ErrNoMessage) {
		return s, false, nil
	}
	if err != nil {
		return s, false, fmt.Errorf("nats/project: read lineage: %w", err)
	}
	for _, r := range l.decode(m) {
		if r.Tenant == l.tenant && f.Is(r.Record) {
			return submission{f.At, r.Run, r.Session, r.Root}, true, nil
		}
	}
	return s, false, nil
}

// one adds the run of a submission if it matches.
func (l *runList) one(ctx context.Context, s submission) (err error) {
	if l.told[s.id] {
		return nil
	}
	if l.graph, err = l.treeOf(ctx, s.root); err != nil {
		return err
	}
	home := session.Key{Tenant: l.tenant, ID: s.home}
	l.back[s.home] = slices.ContainsFunc(l.graph.Records(home), func(r messages.Record) bool { return r.Kind == messages.KindRestored })
	own, err := l.atHome(ctx, []submission{s})
	if err != nil || len(own) == 0 {
		return err
	}
	l.told[s.id] = true
	r, chosen, err := l.graph.Choose(l.tenant, s.id, l.Where, l.Now)
	if err == nil && chosen && l.takes(&r) {
		l.rows = append(l.rows, Listed{r, max(s.at, l.first), l.graph})
	}
	if errors.Is(err, lineage.ErrNotFound) {
		err = nil
	}
	return err
}

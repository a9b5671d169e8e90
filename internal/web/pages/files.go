package pages

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

// filesPage is the files of a run: two states of them, and one file.
type filesPage struct {
	Info     *messages.RunInfo
	Href     string
	States   []fileState
	A, B     string
	Entries  []fileEntry
	Changed  int
	Total    int
	All      string // the link to all files
	Path     string
	Entry    fileEntry
	Lines    []fileLine
	Note     string
	Sizes    string
	Download string
	Picture  string // the address of a picture that may be shown
	Tar      string
	Why      *view.Reason
	WhyHref  string
}

// fileState is the files after one change.
type fileState struct{ Value, Label string }

type fileEntry struct {
	Path, Href, Kind string
	Added, Removed   int
	Changed, Chosen  bool
}

type fileLine struct {
	Op       string
	Old, New int
	Text     string
	By       string // the agent and the step that wrote it, where it differs from the line before
	ByHref   string
	Why      string // the link that opens its reason
	Open     bool
	Gap      bool // lines are left out before it
}

// mostLines bounds the lines of a file on a page, and mostEntries its files.
const (
	mostLines   = 2000
	mostEntries = 500
)

// chosenHeads returns the changes of a run's files, and the chosen two of them.
func chosenHeads(v *visit, h *history) (changes []messages.Record, a, z blob.Digest, err error) {
	if h.graph == nil {
		return nil, a, z, errNothing
	}
	from, to, ok := headsOf(v, h)
	if !ok {
		return nil, a, z, errNothing
	}
	key := session.Key{Tenant: v.Tenant, ID: h.info.Session}
	if h.info.Result != nil {
		key.ID = h.info.Result.Session
	}
	if changes, err = h.graph.Heads(key, 0); err != nil {
		return nil, a, z, err
	}
	pick := func(name string, other blob.Digest) (blob.Digest, error) {
		text := v.r.URL.Query().Get(name)
		if text == "" {
			return other, nil
		}
		for i := range changes { // no other head of the store
			if len(text) >= 12 && (strings.HasPrefix(changes[i].Head, text) || strings.HasPrefix(changes[i].HeadFrom, text)) {
				return blob.ParseDigest(map[bool]string{true: changes[i].Head, false: changes[i].HeadFrom}[strings.HasPrefix(changes[i].Head, text)])
			}
		}
		return other, errNothing
	}
	if a, err = pick("a", from); err != nil {
		return nil, a, z, err
	}
	z, err = pick("b", to)
	return changes, a, z, err
}

func (v *visit) files() error {
	h, err := readHistory(v, run.ID(v.r.PathValue("run")))
	if err != nil {
		return err
	}
	changes, a, z, err := chosenHeads(v, h)
	if err != nil {
		return err
	}
	id := string(h.info.Run)
	b := &filesPage{Info: &h.info, Href: v.base() + "/runs/" + id, A: a.String()[:12], B: z.String()[:12], Path: v.r.URL.Query().Get("path")}
	b.fillStates(changes)
	store := v.Client.Blobs()
	patch, err := manifest.Patch(v.ctx, store, a, z)
	if errors.Is(err, blob.ErrNotFound) {
		return errNothing
	}
	if err != nil {
		return err
	}
	tree, err := manifest.Load(v.ctx, store, z)
	if err != nil {
		return err
	}
	b.fillEntries(tree, slices.DeleteFunc(patch, isDir), v.r.URL.Query().Has("all"))
	b.Tar = b.link("tar", "")
	if b.Path == "" && b.Changed > 0 {
		for _, e := range b.Entries {
			if e.Changed {
				b.Path = e.Path
				break
			}
		}
	}
	if b.Path != "" {
		if err := fillFile(v, b, h, changes, tree, patch, z); err != nil {
			return err
		}
	}
	same := "rath diff " + id
	if b.Path != "" {
		same = "rath why " + id + ":" + plain(b.Path)
	}
	return v.show(200, "files", &frame{
		Title: id + " · files", Here: "runs", Body: b, Same: []string{same, v.curl("GET", "/runs/"+id+"/files")},
		Keys: []key{{"j k", "line"}, {"w", "why"}, {"o", "open the run"}, {"?", "all keys"}},
	})
}

// link is the address of a file, or of a part of the page, in the chosen states.
func (b *filesPage) link(part, path string) string {
	args := url.Values{"a": {b.A}, "b": {b.B}}
	if path != "" {
		args.Set("path", path)
	}
	return b.Href + "/" + part + "?" + args.Encode()
}

func (b *filesPage) fillStates(changes []messages.Record) {
	seen := map[string]bool{}
	add := func(head, label string) {
		if head != "" && !seen[head] {
			seen[head] = true
			b.States = append(b.States, fileState{head[:12], label})
		}
	}
	for i := range changes {
		c := &changes[i]
		add(c.HeadFrom, "before")
		label := "as they came in"
		if c.Kind != messages.KindPlaced {
			label = cmp.Or(c.Agent, c.Actor(), "workflow") + ": " + firstLine(c.Action())
		}
		add(c.Head, lineage.Short(c.Session)+" "+label)
	}
}

func (b *filesPage) fillEntries(tree *manifest.Tree, patch []manifest.FileDiff, all bool) {
	for i := range patch {
		d := &patch[i]
		e := fileEntry{Path: d.Path, Href: b.link("files", d.Path), Kind: string(d.Kind), Changed: true, Chosen: d.Path == b.Path}
		e.Added, e.Removed = d.Changed()
		b.Entries = append(b.Entries, e)
	}
	b.Changed = len(b.Entries)
	for e := range tree.Entries() {
		if e.Kind == manifest.Dir {
			continue
		}
		b.Total++
		if changed := slices.ContainsFunc(patch, func(d manifest.FileDiff) bool { return d.Path == e.Path }); !changed && (all || e.Path == b.Path || tree.Len() <= 50 && !manifest.InGit(e.Path)) && len(b.Entries) < mostEntries {
			b.Entries = append(b.Entries, fileEntry{Path: e.Path, Href: b.link("files", e.Path), Kind: string(e.Kind), Chosen: e.Path == b.Path})
		}
	}
	slices.SortFunc(b.Entries, func(x, y fileEntry) int { return strings.Compare(x.Path, y.Path) })
	if !all && len(b.Entries) < b.Total {
		b.All = b.link("files", b.Path) + "&all=1"
	}
	for _, e := range b.Entries {
		if e.Chosen {
			b.Entry = e
		}
	}
}

// fillFile makes the lines of the chosen file, with who wrote each, and the reason of one.
func fillFile(v *visit, b *filesPage, h *history, changes []messages.Record, tree *manifest.Tree, patch []manifest.FileDiff, z blob.Digest) error {
	b.Download = b.link("file", b.Path)
	to := 0 // the changes up to the second state
	for i := range changes {
		if changes[i].Head == z.String() {
			to = i + 1
		}
	}
	written, err := view.Blame(v.ctx, v.Client.Blobs(), h.graph, changes[:to], b.Path)
	if v.ctx.Err() != nil {
		return v.ctx.Err()
	}
	if err != nil { // no text, or removed: the difference alone
		written = nil
	}
	i := slices.IndexFunc(patch, func(d manifest.FileDiff) bool { return d.Path == b.Path })
	e, exists := tree.Lookup(b.Path)
	switch {
	case i >= 0:
		d := &patch[i]
		b.Sizes = byteSize(d.Before.Size) + " → " + byteSize(d.After.Size)
		if d.Binary || d.Large {
			b.Note = "This file is no text, or larger than 1 MiB: its difference is not shown."
		}
		b.diffLines(d.Hunks)
	case !exists:
		return errNothing
	default:
		b.Sizes = byteSize(e.Size)
		if len(written) == 0 {
			b.Note = "This file is empty, or no text."
		}
		for n := range written[:min(len(written), mostLines)] {
			b.Lines = append(b.Lines, fileLine{Old: n + 1, New: n + 1, Text: written[n].Text})
		}
	}
	if rc, err := workspace.Open(v.ctx, v.Client.Blobs(), z, b.Path); exists && err == nil {
		head, err := io.ReadAll(io.LimitReader(rc, 512)) // all that tells the format
		if err = errors.Join(err, rc.Close()); err != nil {
			return err
		}
		if picture(head) != "" {
			b.Picture, b.Note = b.Download+"&inline", ""
		}
	}
	if len(b.Lines) >= mostLines {
		b.Note = fmt.Sprintf("The first %d lines; download the file for the others.", mostLines)
	}
	b.credit(v, written)
	line, err := strconv.Atoi(v.r.URL.Query().Get("line"))
	if err == nil && line >= 1 && line <= len(written) {
		by := written[line-1].By
		r := view.Reason{What: fmt.Sprintf("%s:%d", b.Path, line), Text: written[line-1].Text}
		r.ChangedBy(h.graph, v.Tenant, by)
		if err := r.Complete(h.graph, v.Tenant); err != nil {
			return err
		}
		b.Why = &r
		if by.Step != "" {
			b.WhyHref = v.base() + "/runs/" + string(by.Run) + "/step/" + url.PathEscape(string(by.Step))
		}
		for n := range b.Lines {
			b.Lines[n].Open = b.Lines[n].New == line
		}
	}
	return nil
}

func (b *filesPage) diffLines(hunks []manifest.Hunk) {
	for n := range hunks {
		old, now := hunks[n].OldStart, hunks[n].NewStart
		for i, l := range hunks[n].Lines {
			if len(b.Lines) == mostLines {
				return
			}
			line := fileLine{Op: strings.TrimSpace(string(l.Op)), Text: l.Text, Gap: i == 0 && (n > 0 || old > 1)}
			if l.Op != '+' {
				line.Old = old
				old++
			}
			if l.Op != '-' {
				line.New = now
				now++
			}
			b.Lines = append(b.Lines, line)
		}
	}
}

// credit names who wrote each line.
func (b *filesPage) credit(v *visit, written []view.BlamedLine) {
	last := ""
	for i := range b.Lines {
		l := &b.Lines[i]
		if l.New == 0 || l.New > len(written) {
			continue
		}
		by := written[l.New-1].By
		who := "copied in"
		if by.Kind != messages.KindPlaced {
			who = cmp.Or(by.Agent, by.Actor(), "workflow")
			if by.Step != "" {
				who += ", step " + string(by.Step)
			}
		}
		if who != last {
			l.By, last = who, who
			if by.Step != "" {
				l.ByHref = v.base() + "/runs/" + string(by.Run) + "/step/" + url.PathEscape(string(by.Step))
			}
		}
		l.Why = fmt.Sprintf("%s&line=%d#L%d", b.link("files", b.Path), l.New, l.New)
	}
}

// maxDownload bounds a file that is downloaded.
const maxDownload = 256 << 20

// download sends a file as bytes without a meaning; a picture of a kind that cannot act
// may be shown.
func (v *visit) download() error {
	h, err := readHistory(v, run.ID(v.r.PathValue("run")))
	if err != nil {
		return err
	}
	_, _, z, err := chosenHeads(v, h)
	if err != nil {
		return err
	}
	rc, err := workspace.Open(v.ctx, v.Client.Blobs(), z, path.Clean(v.r.URL.Query().Get("path")))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, blob.ErrNotFound) {
		return errNothing
	}
	if err != nil {
		return err
	}
	data, err := io.ReadAll(io.LimitReader(rc, maxDownload+1))
	if err = errors.Join(err, rc.Close()); err != nil {
		return err
	}
	if len(data) > maxDownload {
		return fmt.Errorf("the file has more than %s: %w", byteSize(int64(maxDownload)), session.ErrTooLarge)
	}
	hd := v.w.Header()
	hd.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	hd.Set("Content-Type", "application/octet-stream")
	if format := picture(data); format != "" && v.r.URL.Query().Has("inline") {
		hd.Set("Content-Type", format)
	} else {
		hd.Set("Content-Disposition", `attachment; filename="`+blob.Sum(data).Short()+`"`) // no name of an agent
	}
	_, err = v.w.Write(data)
	return logSent(v, err)
}

// picture returns the format of a picture that cannot act, "" for other bytes.
func picture(data []byte) string {
	switch format := http.DetectContentType(data); format {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return format
	}
	return ""
}

// logSent logs the error of an answer that has begun.
func logSent(v *visit, err error) error {
	if err != nil {
		v.p.Log.Debug("a browser did not take a download", "error", err)
	}
	return nil
}

// tar sends the files that `rath apply` would write, and a list of the others.
func (v *visit) tar() error {
	h, err := readHistory(v, run.ID(v.r.PathValue("run")))
	if err != nil {
		return err
	}
	_, a, z, err := chosenHeads(v, h)
	if err != nil {
		return err
	}
	plan, err := workspace.NewPlan(v.ctx, v.Client.Blobs(), a, z, nil)
	if err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "application/octet-stream")
	v.w.Header().Set("Content-Disposition", `attachment; filename="`+z.Short()+`.tar"`)
	return logSent(v, plan.WriteTar(v.ctx, v.w))
}

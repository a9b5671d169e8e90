package work

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/files/git"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

// asBranch leaves the changes of a run as commits on a branch of the repository that
// contains a directory.
type asBranch struct {
	repo *git.Repository
	// base is the commit that was checked out when the files were uploaded, "" for
	// none; or the commit that is checked out now, if later is set.
	base  string
	later bool
	dir   string // as typed
}

// openBranch finds the repository before the run begins. Without git it returns nil,
// and the command writes a patch in the end.
func openBranch(ctx context.Context, dir string) (*asBranch, error) {
	repo, err := git.Open(ctx, dir)
	switch {
	case errors.Is(err, git.ErrNoGit):
		return nil, nil
	case errors.Is(err, git.ErrNoRepository):
		return nil, app.Fail(app.ExitConflict, "%s is in no git repository, or in another user's: run \"git init\" there, or use --apply", dir)
	case err != nil:
		return nil, noBranch(dir, err)
	}
	b := &asBranch{repo: repo, dir: dir}
	if b.base, err = repo.Head(ctx); err != nil {
		return nil, errors.Join(err, repo.Close())
	}
	return b, nil
}

// noBranch adds the remedy to the error of a repository that leads elsewhere.
func noBranch(dir string, err error) error {
	if errors.Is(err, git.ErrLeads) {
		return app.Fail(app.ExitConflict, "no branch is made in %s: %s; leave the branch out, and \"rath diff RUN\" prints the changes", dir, cause(err))
	}
	return err
}

// cause returns the text of an error of git, without the name of the package.
func cause(err error) string { return strings.TrimPrefix(err.Error(), "git: ") }

// where names the branch, and its repository, of a run.
func (b *asBranch) where(r *messages.Result) string {
	where := "the branch " + branchName(r) + " of " + b.dir
	if other := b.repo.Elsewhere(); other != "" {
		where += ", in the repository " + other
	}
	return where
}

func (b *asBranch) Close() error {
	if b == nil {
		return nil
	}
	return b.repo.Close()
}

// writePatch leaves the changes of a run as a patch, if there is no git program.
func writePatch(a *app.App, r *messages.Result, diff string) error {
	name := "rath-" + string(r.Run) + ".patch"
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return app.Fail(app.ExitConflict, "there is no git program, and the patch %s exists already: move it away", name)
	}
	if err != nil {
		return err
	}
	if _, err := f.WriteString(diff); err != nil {
		return errors.Join(err, f.Close())
	}
	a.Remark("there is no git program to make a branch with: the changes are in %s, for \"git apply\" or \"patch -p1\"", name)
	return f.Close()
}

// branchName is the branch of a run.
func branchName(r *messages.Result) string { return "rath/" + string(r.Run) }

// leave makes the commits of a run and the branch that names them; it returns "" if no
// change may be exported.
func (b *asBranch) leave(ctx context.Context, s *app.System, r *messages.Result, from, to blob.Digest, o *workspace.PlanOptions) (commit string, err error) {
	if err := b.repo.Stays(ctx); err != nil { // the repository may have been replaced since the run began
		return "", noBranch(b.dir, err)
	}
	defer func() {
		if errors.Is(err, git.ErrRefused) {
			err = app.Fail(app.ExitConflict, "no branch was made: %s; \"rath apply %s -C %s --branch --only PATH\" carries the paths that you name", cause(err), r.Run, app.ShellWord(b.dir))
		}
	}()
	c := &commits{asBranch: b, s: s, run: r, blobs: s.Blobs(s.Tenant()), from: from, options: o, when: time.UnixMilli(r.EndedMS)}
	if c.before, err = manifest.Load(ctx, c.blobs, from); err != nil {
		return "", err
	}
	c.files = manifest.NewFiles(c.blobs, c.before)
	if changes, err := c.changes(ctx, to); err != nil || len(changes) == 0 {
		return "", err
	} else if err := c.found(ctx, changes); err != nil {
		return "", err
	}
	tip, err := c.ofRun(ctx, to)
	if err != nil {
		return "", err
	}
	err = b.repo.Branch(ctx, branchName(r), tip.commit)
	if errors.Is(err, git.ErrExists) {
		return "", app.Fail(app.ExitConflict, "the branch %s exists with other content, or is checked out: rename it with \"git branch -m\", then run \"rath apply %s --branch\"", branchName(r), r.Run)
	}
	return tip.commit, err
}

// commits makes the commits of one run.
type commits struct {
	*asBranch
	s       *app.System
	run     *messages.Result
	blobs   blob.Store
	files   *manifest.Files
	from    blob.Digest
	before  *manifest.Tree // of from
	options *workspace.PlanOptions
	when    time.Time
	made    int
}

// maxCommits bounds the commits of a run. Further branches get no commits of their own.
const maxCommits = 256

// point is a commit and its files.
type point struct {
	commit string
	head   blob.Digest
}

// changes returns the changes of a head that may be exported.
func (c *commits) changes(ctx context.Context, head blob.Digest) ([]manifest.Change, error) {
	plan, err := workspace.NewPlan(ctx, c.blobs, c.from, head, c.options)
	if err != nil {
		return nil, err
	}
	after, err := manifest.Load(ctx, c.blobs, head)
	if err != nil {
		return nil, err
	}
	c.files.Add(after)
	return slices.DeleteFunc(manifest.Compare(c.before, after), func(ch manifest.Change) bool {
		_, ok := slices.BinarySearch(plan.Paths, ch.Path)
		return !ok
	}), nil
}

// maxSince bounds the later commits that are searched for the uploaded files.
const maxSince = 100

// found commits the uncommitted state of the paths that the run changed, as it was when
// they were uploaded, so that the run's own commits hold only the run's changes.
func (c *commits) found(ctx context.Context, changes []manifest.Change) error {
	var had []manifest.Entry
	for _, ch := range changes {
		e := ch.Before
		e.Path = ch.Path
		had = append(had, e)
	}
	open, err := c.repo.Differing(ctx, c.files, c.base, had)
	if err != nil || len(open) == 0 {
		return err
	}
	if c.later && c.base != "" {
		// Commits may have followed the upload: the run's commits go beside them.
		all, err := c.repo.Ancestors(ctx, c.base, maxSince)
		if err != nil {
			return err
		}
		for _, commit := range all {
			if differs, err := c.repo.Differing(ctx, c.files, commit, had); err != nil {
				return err
			} else if len(differs) == 0 {
				c.base = commit
				return nil
			}
		}
	}
	tree, err := c.repo.Tree(ctx, c.files, c.base, open)
	if err != nil {
		return err
	}
	c.base, err = c.repo.Commit(ctx, tree, above(c.base), c.message("Files that run "+string(c.run.Run)+" found and no commit held", "", ""), c.when)
	return err
}

// above returns the parents of a commit, without empty ones.
func above(commits ...string) []string {
	return slices.DeleteFunc(commits, func(c string) bool { return c == "" })
}

// maxLine is the largest width of a line of a message.
const maxLine = 1000

// message returns a subject, lines about it, and the trailers that lead back to the
// record.
func (c *commits) message(subject, about, at string, trailers ...string) string {
	var text strings.Builder
	// Names of files and branches are in both, and must not form a trailer.
	text.WriteString(term.Line(subject, maxLine) + "\n\n")
	if about != "" {
		text.WriteString(term.Line(about, maxLine) + "\n\n")
	}
	text.WriteString("Rath-Run: " + string(c.run.Run) + "\n")
	if at != "" {
		text.WriteString("Rath-Session: " + at + "\n")
	}
	for _, hash := range trailers {
		text.WriteString("Rath-Chain-Head: " + hash + "\n")
	}
	return text.String()
}

// commit commits a head on others.
func (c *commits) commit(ctx context.Context, head blob.Digest, subject, about, at, chain string, parents ...string) (point, error) {
	changes, err := c.changes(ctx, head)
	if err != nil {
		return point{}, err
	}
	tree, err := c.repo.Tree(ctx, c.files, c.base, changes)
	if err != nil {
		return point{}, err
	}
	c.made++
	id, err := c.repo.Commit(ctx, tree, above(parents...), c.message(subject, about, at, chain), c.when)
	return point{id, head}, err
}

// ofRun makes the commits of the run, up to its last files.
func (c *commits) ofRun(ctx context.Context, to blob.Digest) (point, error) {
	home := session.Key{Tenant: c.s.Tenant(), ID: c.run.Session}
	v, err := c.s.At(ctx, session.Ref{Key: home, Version: c.run.Version})
	if err != nil {
		return point{}, err
	}
	link, _ := v.Link()
	after := uint64(0)
	if rec, err := c.s.Values.Recording(ctx, home, c.run.Run); err == nil {
		if base, ok := rec.Base.Link(); ok && base.Key == home {
			after = base.Seq
		}
	}
	chain := link.Hash.String()
	if c.run.Chain != nil {
		chain = c.run.Chain.Hash
	}
	name := "Run " + string(c.run.Run)
	if c.run.Workflow != "" {
		name += " of " + c.run.Workflow
	}
	tip, err := c.line(ctx, link, after, point{c.base, c.from}, 0, name, chain)
	if err == nil && tip.head != to {
		return c.commit(ctx, to, name, "", link.Ref.String(), chain, tip.commit)
	}
	return tip, err
}

// line makes the commits of a session, from a commit of its log on: one for each branch
// that it joined and that changed files, one for each merge of their files, and one for
// its other changes.
func (c *commits) line(ctx context.Context, to session.Link, after uint64, at point, depth int, name, chain string) (point, error) {
	head, about := at.head, ""
	for e, err := range c.s.Log.Read(ctx, to.Key, commitlog.Position{}) {
		if err != nil {
			return at, err
		}
		if e.At.Seq > to.Seq {
			break
		}
		for _, ev := range e.Commit.Events {
			if e.At.Seq <= after {
				continue
			}
			switch moved, join, err := filesOfEvent(ev); {
			case err != nil:
				return at, fmt.Errorf("session %s: %w", to.ID, err)
			case join != nil:
				if at, err = c.join(ctx, join, at, head, depth, name, about, to.Ref.String(), chain); err != nil {
					return at, err
				}
				head = at.head
			case !moved.IsZero():
				head = moved
			}
			if o, err := session.DecodeOpening(ev); err == nil && depth > 0 && o.Name != "" {
				name = "Branch " + o.Name + " of run " + string(c.run.Run)
			}
			if d, err := journal.Decode[journal.StepCompleted](ev); err == nil && ev.Kind == journal.KindStepCompleted && d.Kind == journal.StepDo && d.Name == "merge files" {
				about = d.Summary
			}
		}
	}
	if head == at.head || c.made >= maxCommits {
		return at, nil
	}
	return c.commit(ctx, head, name, "", to.Ref.String(), chain, at.commit)
}

// filesOfEvent returns the head that an event moved the files to, or the join that it is.
func filesOfEvent(ev session.Event) (head blob.Digest, join *session.Join, err error) {
	switch ev.Kind {
	case session.KindChunk:
		ch, err := session.DecodeChunk(ev)
		return ch.Origin().Placement.Head, nil, err
	case session.KindPlaced:
		p, err := session.DecodePlacement(ev)
		return p.Head, nil, err
	case session.KindJoined:
		j, err := session.DecodeJoin(ev)
		if err != nil || j.Placement.Head.IsZero() {
			return head, nil, err
		}
		return head, &j, nil
	}
	return head, nil, nil
}

// join makes the commits of the branches of a join, and of the join itself.
func (c *commits) join(ctx context.Context, j *session.Join, at point, head blob.Digest, depth int, name, about, ref, chain string) (point, error) {
	var err error
	if head != at.head { // the session's changes before they parted
		if at, err = c.commit(ctx, head, name+", before its branches", "", ref, chain, at.commit); err != nil {
			return at, err
		}
	}
	var sides []point
	for _, part := range j.Parents {
		if depth >= run.MaxDepth || c.made >= maxCommits {
			break
		}
		side, err := c.line(ctx, part.Link, 0, at, depth+1, name, part.Link.Hash.String())
		switch {
		case err != nil:
			return at, err
		case side.head == j.Placement.Head:
			return side, nil // its files are taken as they are
		case side.commit != at.commit:
			sides = append(sides, side)
		}
	}
	if j.Placement.Head == at.head {
		return at, nil
	}
	parents := []string{at.commit}
	if len(sides) > 0 {
		parents = nil
	}
	for _, s := range sides {
		parents = append(parents, s.commit)
	}
	return c.commit(ctx, j.Placement.Head, fmt.Sprintf("Merge %d branches of run %s", len(j.Parents), c.run.Run), about, ref, chain, parents...)
}

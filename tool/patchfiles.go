package tool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/rathcluster/rath/sandbox"
)

type patchArgs struct {
	Input string `json:"input" jsonschema:"the patch: *** Begin Patch, then for each file *** Update File: NAME with hunks of @@ and lines that begin with a blank, - or +, or *** Add File: NAME with lines that begin with +, or *** Delete File: NAME, then *** End Patch"`
}

type patchBody struct {
	Files []patchedFile `json:"files"`
}

type patchedFile struct {
	Path    string `json:"path"`
	Change  string `json:"change"` // added, deleted, moved or updated
	To      string `json:"to,omitempty"`
	Added   int    `json:"added"`
	Removed int    `json:"removed"`
}

func applyPatch() Tool {
	return builtin(ApplyPatch,
		"Changes files of the workspace by a patch, all of them or none. A hunk needs enough lines around its change to fit at one place only, or @@ and a line before it, such as @@ func main() {.",
		Sandboxed, nil, applyInput)
}

func applyInput(ctx context.Context, _ Call, sb sandbox.Sandbox, in patchArgs) (any, error) {
	all, err := parsePatch(sb.Info().Dir, in.Input)
	if err != nil {
		return nil, err
	}
	c := change{sb: sb, by: newFinder(ctx)}
	var body patchBody
	for _, f := range all {
		told, err := c.plan(ctx, f)
		if err != nil {
			return nil, err
		}
		body.Files = append(body.Files, told)
	}
	if err := c.carryOut(ctx); err != nil {
		return nil, err
	}
	return body, nil
}

// change is the plan of a patch, complete before its first step is taken.
type change struct {
	sb    sandbox.Sandbox
	by    *finder
	bytes int // total size of the original files, held in memory until the end
	steps []changeStep
	last  []changeStep // taken after all others: they remove the deleted files
}

// changeStep is one call of the sandbox's files.
type changeStep struct {
	name string
	do   func(context.Context) error
	back func(context.Context) error
}

// plan adds the steps that apply the patch to one file.
func (c *change) plan(ctx context.Context, f *filePatch) (told patchedFile, err error) {
	told = patchedFile{Path: f.path, Change: "updated", To: f.to}
	files := c.sb.Files()
	if f.verb == patchAdd {
		if err := c.free(ctx, f.path); err != nil {
			return told, err
		}
		told.Change, told.Added = "added", strings.Count(f.text, "\n")
		if len(f.text) > MaxEdited {
			return told, &Failure{Kind: TooLarge, Detail: f.path, Message: fmt.Sprintf("%q would have %d bytes, at most %d are written", f.path, len(f.text), MaxEdited)}
		}
		c.then(f.path, func(ctx context.Context) error { return writeText(ctx, c.sb, f.path, f.text) },
			func(ctx context.Context) error { return files.Remove(ctx, f.path) })
		return told, nil
	}
	read := readText
	if f.verb == patchDelete {
		read = readWhole
	}
	before, err := read(ctx, c.sb, f.path)
	if err != nil {
		return told, err
	}
	if c.bytes += len(before); c.bytes > MaxScanned {
		return told, &Failure{Kind: TooLarge, Detail: f.path, Message: fmt.Sprintf("the files of the patch have more than %d MiB: send it in parts", MaxScanned>>20)}
	}
	if f.verb == patchDelete {
		told.Change, told.Removed = "deleted", len(linesAs(before))
		// The file is renamed first, so that an undo restores its mode.
		aside, err := c.aside(ctx, f.path)
		if err != nil {
			return told, err
		}
		c.then(f.path, func(ctx context.Context) error { return files.Rename(ctx, f.path, aside) },
			func(ctx context.Context) error { return files.Rename(ctx, aside, f.path) })
		c.last = append(c.last, changeStep{
			f.path, func(ctx context.Context) error { return files.Remove(ctx, aside) },
			func(ctx context.Context) error { return writeText(ctx, c.sb, aside, before) },
		})
		return told, nil
	}
	after, added, removed, err := f.patched(before, c.by)
	if err != nil {
		return told, err
	}
	if err := keepsBytes(f.path, before, after); err != nil {
		return told, err
	}
	told.Added, told.Removed = added, removed
	if f.to != "" {
		if err := c.free(ctx, f.to); err != nil {
			return told, err
		}
		told.Change = "moved"
	}
	if after != before {
		c.then(f.path, func(ctx context.Context) error { return writeText(ctx, c.sb, f.path, after) },
			func(ctx context.Context) error { return writeText(ctx, c.sb, f.path, before) })
	}
	if f.to != "" {
		c.then(f.to, func(ctx context.Context) error { return files.Rename(ctx, f.path, f.to) },
			func(ctx context.Context) error { return files.Rename(ctx, f.to, f.path) })
	}
	return told, nil
}

// aside returns an unused name in the directory of a file.
func (c *change) aside(ctx context.Context, name string) (string, error) {
	for n := len(c.last); n < len(c.last)+2*MaxPatchFiles; n++ {
		to := path.Join(path.Dir(name), fmt.Sprintf(".deleted-%d", n))
		switch _, err := c.sb.Files().Stat(ctx, to); {
		case errors.Is(err, fs.ErrNotExist):
			return to, nil
		case err != nil:
			return "", pathFailure(name, err)
		}
	}
	return "", &Failure{Kind: Mismatch, Detail: name, Message: fmt.Sprintf("beside %q lie too many files .deleted-0, .deleted-1, ...: remove them; no file was changed", name)}
}

// free returns an error if the name is in use.
func (c *change) free(ctx context.Context, name string) error {
	switch _, err := c.sb.Files().Stat(ctx, name); {
	case err == nil:
		return &Failure{Kind: Mismatch, Detail: name, Message: fmt.Sprintf("%q is there already: update it, or delete it first; no file was changed", name)}
	case !errors.Is(err, fs.ErrNotExist):
		return pathFailure(name, err)
	}
	return nil
}

func (c *change) then(name string, do, back func(context.Context) error) {
	c.steps = append(c.steps, changeStep{name, do, back})
}

// carryOut takes all steps. If one fails, it undoes the earlier ones.
func (c *change) carryOut(ctx context.Context) error {
	c.steps = append(c.steps, c.last...)
	for i, s := range c.steps {
		err := s.do(ctx)
		if err == nil {
			continue
		}
		f, ok := errors.AsType[*Failure](err)
		if !ok {
			f, _ = errors.AsType[*Failure](pathFailure(s.name, err))
		}
		told := *f
		told.Message += "; no file was changed"
		for ; i > 0; i-- {
			if err := c.steps[i-1].back(context.WithoutCancel(ctx)); err != nil {
				told.Message = f.Message + fmt.Sprintf("; a part of the patch is done and %q could not be put back: look at the files", c.steps[i-1].name)
				break
			}
		}
		return &told
	}
	return nil
}

package engine

import (
	"context"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// Diff is flow.Diff.
func (p *place) Diff(ctx context.Context, s session.Session) (string, error) {
	st, err := p.begin(ctx, journal.StepDo, "diff", session.Session{}, false, tool.ReadOnly.String(), s.Ref().String(), s.PendingDigest())
	if err != nil {
		return "", err
	}
	defer st.end()
	st.exact = true
	text := ""
	err = st.make(func() error { return st.decode(&text) }, func() (d journal.StepCompleted, err error) {
		from, err := st.ex.files.headBefore(st.ctx, st.asked.Path, s)
		to := s.Placement().Head
		if err == nil && !to.IsZero() {
			text, err = diff(st.ctx, st.ex.boxes.blobs(), from, to)
		}
		if err != nil {
			return d, came(fmt.Errorf("flow: diff of %s: %w", s.Ref(), err))
		}
		d.Summary = "compares the files with those that the session came with"
		d.Value, err = canonical.Marshal(text)
		return d, err
	})
	return text, err
}

// diff returns the differences between two states of the files, cut at a line to
// journal.MaxDetail bytes with a note of the omitted part.
func diff(ctx context.Context, b blob.Store, from, to blob.Digest) (string, error) {
	patch, err := manifest.Patch(ctx, b, from, to)
	if err != nil {
		return "", err
	}
	var whole strings.Builder
	if err := manifest.WriteUnified(&whole, patch); err != nil {
		return "", err
	}
	text := whole.String()
	if len(text) <= journal.MaxDetail {
		return text, nil
	}
	first := "-"
	if !from.IsZero() {
		first = from.String()
	}
	rest := fmt.Sprintf("… %d bytes in all; the whole: rath diff %s %s\n", len(text), first, to)
	head := excerpt.Clip(text, journal.MaxDetail-len(rest))
	return head[:strings.LastIndexByte(head, '\n')+1] + rest, nil
}

// headBefore returns the files with which a session started: the home of a run as the run
// found it, any other session as its first parent was. If no tool had opened the sandbox
// by then, they are the files with which the sandbox was opened, or that the run opened
// first.
func (f *files) headBefore(ctx context.Context, at run.Path, s session.Session) (blob.Digest, error) {
	ex := f.ex
	var came session.Session
	owner := ex.levels.owner(at)
	if s.Key() == owner.home {
		came = owner.base
		if owner.run == ex.id {
			came = ex.granted.Base
		}
	} else {
		for l := range s.Parents() {
			var err error
			if came, err = ex.rt.Values.Link(ctx, l); err != nil {
				return blob.Digest{}, err
			}
			break
		}
	}
	if head := came.Placement().Head; !head.IsZero() {
		return head, nil
	}
	return ex.leases.OpenedWith(s.Key()), nil
}

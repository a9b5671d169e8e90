package workspace

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rathcluster/rath/internal/files/manifest"
)

// NotInTar is the name of the last entry of a tar, which lists the paths that are not in
// it: those that the plan withholds, and those that it removes.
const NotInTar = "RATH-NOT-IN-THIS-ARCHIVE.txt"

// WriteTar writes the files, directories and links that the plan carries as a tar without
// owners and times: the same plan gives the same bytes. An entry NotInTar lists the other
// changed paths, if there are any. An error may leave a part of the tar written.
func (p *Plan) WriteTar(ctx context.Context, w io.Writer) error {
	out := tar.NewWriter(w)
	var rest strings.Builder
	for _, l := range p.Withheld {
		fmt.Fprintf(&rest, "withheld: %s: %s\n", l.Path, l.Why)
	}
	for _, c := range p.changes {
		if c.Path == NotInTar {
			fmt.Fprintf(&rest, "withheld: %s: the list of an archive has this name\n", c.Path)
			continue
		}
		if c.After.Kind == "" {
			fmt.Fprintf(&rest, "removed: %s\n", c.Path)
			continue
		}
		if err := p.pack(ctx, out, c.After); err != nil {
			return fmt.Errorf("workspace: tar: %s: %w", c.Path, err)
		}
	}
	if rest.Len() > 0 {
		h := &tar.Header{Name: NotInTar, Mode: 0o644, Size: int64(rest.Len())}
		if err := out.WriteHeader(h); err != nil {
			return fmt.Errorf("workspace: tar: %w", err)
		}
		if _, err := io.WriteString(out, rest.String()); err != nil {
			return fmt.Errorf("workspace: tar: %w", err)
		}
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("workspace: tar: %w", err)
	}
	return nil
}

func (p *Plan) pack(ctx context.Context, out *tar.Writer, e manifest.Entry) error {
	h := &tar.Header{Name: e.Path, Mode: 0o644}
	switch e.Kind {
	case manifest.Dir:
		h.Typeflag, h.Name, h.Mode = tar.TypeDir, e.Path+"/", 0o755
	case manifest.Symlink:
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.Target, 0o777
	default:
		h.Size = e.Size
		if e.Exec {
			h.Mode = 0o755
		}
	}
	if err := out.WriteHeader(h); err != nil || h.Size == 0 {
		return err
	}
	data, err := p.blobs.Get(ctx, e.Digest)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, data)
	return errors.Join(err, data.Close())
}

// Command fix shows branches: an attempt works on a fork of the session with
// its own files. A rejected attempt leaves only its reason, and the accepted one
// becomes the new state of the session.
//
//	go run ./examples/fix
//
// The model is a script, so it runs without a key and always gives the same
// output.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow/inprocess"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

//go:embed model.txtar
var script []byte

// request is the user's request.
const request = "Set VERSION to the next minor version."

func main() {
	local.Reexec() // first of all: sandboxes start this program again
	dir, err := os.MkdirTemp("", "fix-")
	if err == nil {
		err = errors.Join(fix(context.Background(), os.Stdout, dir), os.RemoveAll(dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fix:", err)
		os.Exit(1)
	}
}

// fix runs the workflow on a small repository below dir and prints the outcome of each
// branch and the files.
func fix(ctx context.Context, w io.Writer, dir string) error {
	parsed, err := scripted.Parse("model.txtar", script)
	if err != nil {
		return err
	}
	model, err := scripted.New(parsed, nil)
	if err != nil {
		return err
	}
	repo := filepath.Join(dir, "repo")
	if _, err := parsed.WriteFiles(repo); err != nil {
		return err
	}

	blobs := blob.NewMemory() // the files of the branches, which fix reads afterwards
	r := &inprocess.Runner{
		Models: model, Blobs: blobs,
		Dir:       filepath.Join(dir, "work"),
		Sandboxes: map[string]sandbox.Backend{"local": local.New(&local.Options{State: filepath.Join(dir, "boxes")})},
		// No model chooses the commands that run here, so they need no confinement.
		Unsafe: true,
	}
	s, err := r.Run(ctx, newFix(), session.New(session.UserText(request)).To("local", repo))
	if err != nil {
		return err
	}
	if err := tell(ctx, w, r, s.Key()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "result: %s, after %d rows\n", version(ctx, blobs, s.Placement().Head), s.Len())
	return err
}

// tell prints the outcome of each branch of a session, with the branch's file.
func tell(ctx context.Context, w io.Writer, r *inprocess.Runner, k session.Key) error {
	records, err := r.Lineage(ctx, k)
	if err != nil {
		return err
	}
	for _, rec := range records {
		var branch session.ID
		outcome := "rejected"
		switch rec.Kind {
		case messages.KindRejected:
			branch = rec.Branches[0].Session
		case messages.KindAdopted:
			branch, outcome = rec.Parents[0].Session, "adopted"
		default:
			continue
		}
		head, err := lastHead(ctx, r, session.Key{Tenant: k.Tenant, ID: branch})
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%s: %s (%s)\n", outcome, rec.Reason, version(ctx, r.Blobs, head)); err != nil {
			return err
		}
	}
	return nil
}

// lastHead returns the newest files of a session.
func lastHead(ctx context.Context, r *inprocess.Runner, k session.Key) (head blob.Digest, err error) {
	records, err := r.Lineage(ctx, k)
	for _, rec := range records {
		if rec.Head != "" && err == nil {
			head, err = blob.ParseDigest(rec.Head)
		}
	}
	return head, err
}

// version reads the file VERSION of a head.
func version(ctx context.Context, blobs blob.Store, head blob.Digest) string {
	data, err := workspace.Read(ctx, blobs, head, "VERSION")
	if err != nil {
		return err.Error()
	}
	return "VERSION is " + strings.TrimSpace(string(data))
}

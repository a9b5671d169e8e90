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
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/llm/scripted"
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

	// The stores that fix reads afterwards. A node has the same over NATS.
	log, blobs := &commitlog.Memory{}, blob.NewMemory()
	r := &inprocess.Runner{
		Models: model, Log: log, Blobs: blobs,
		Dir:       filepath.Join(dir, "work"),
		Sandboxes: map[string]sandbox.Backend{"local": local.New(&local.Options{State: filepath.Join(dir, "boxes")})},
		// No model chooses the commands that run here, so they need no confinement.
		Unsafe: true,
	}
	s, err := r.Run(ctx, newFix(), session.New(session.UserText(request)).To("local", repo))
	if err != nil {
		return err
	}
	if err := tell(ctx, w, log, journal.NewValues(log), blobs, s.Key()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "result: %s, after %d rows\n", version(ctx, blobs, s), s.Len())
	return err
}

// tell reads in the log of a session how its branches ended and prints that,
// each with its file.
func tell(ctx context.Context, w io.Writer, log commitlog.Log, values *journal.Values, blobs blob.Store, k session.Key) error {
	for e, err := range log.Read(ctx, k, commitlog.Position{}) {
		if err != nil {
			return err
		}
		for _, ev := range e.Commit.Events {
			var branch session.Ref
			var reason string
			switch ev.Kind {
			case session.KindRejected:
				r, err := commitlog.DecodeRejection(ev)
				if err != nil {
					return err
				}
				branch, reason = r.Branch.Ref, "rejected: "+r.Reason
			case session.KindJoined:
				j, err := session.DecodeJoin(ev)
				if err != nil {
					return err
				}
				branch, reason = j.Parents[0].Link.Ref, "adopted: "+j.Reason
			default:
				continue
			}
			v, err := values.At(ctx, branch)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "%s (%s)\n", reason, version(ctx, blobs, v)); err != nil {
				return err
			}
		}
	}
	return nil
}

// version reads the file VERSION as a session has it.
func version(ctx context.Context, blobs blob.Store, s session.Session) string {
	data, err := workspace.Read(ctx, blobs, s.Placement().Head, "VERSION")
	if err != nil {
		return err.Error()
	}
	return "VERSION is " + strings.TrimSpace(string(data))
}

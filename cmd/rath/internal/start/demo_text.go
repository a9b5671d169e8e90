package start

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/evidence"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
)

// header prints the setup of the demo.
func (d *demonstration) header(ctx context.Context, s *app.System, dir string, repo bool) {
	model := "scripted model: no key, no network"
	if d.o.live {
		model = "real model " + cmp.Or(d.o.model, d.Config.Model.Value, "of the server")
	}
	d.Out.Println(d.columns("rath demo", model, fmt.Sprintf("store %s   pid %d", d.storeText(), os.Getpid())))
	isolation := "local"
	if c, err := d.box.Probe(ctx); err == nil {
		isolation += ", " + string(c.Isolation)
	}
	level := map[string]string{"fsync": "fsync on every commit", "lazy": "lazy: lost at a power cut"}[s.Level]
	d.Out.Println(d.columns("sandbox", isolation, "log   "+cmp.Or(level, s.Level)))
	if repo {
		title, about := d.repository(ctx, dir)
		d.Out.Println(d.columns("issue", `"`+title+`"`, "repo  "+about))
	}
}

// columns lays out a line of the header.
func (d *demonstration) columns(name, left, right string) string {
	return d.Out.Paint(term.Bold, term.Pad(name, 11)) + " " + term.Pad(term.Line(left, 37), 37) + " " + right
}

func (d *demonstration) storeText() string {
	store := d.Config.Store.Value
	if !filepath.IsAbs(store) && !strings.HasPrefix(store, ".") {
		store = "./" + store
	}
	if store == node.DefaultStore {
		return "./" + store
	}
	return store
}

// repository reads the title and runs the tests once.
func (d *demonstration) repository(ctx context.Context, dir string) (title, about string) {
	files := 0
	if entries, err := os.ReadDir(dir); err == nil {
		files = len(entries)
	}
	data, err := os.ReadFile(filepath.Join(dir, "issue.md"))
	if err == nil {
		first, _, _ := strings.Cut(string(data), "\n")
		title = strings.TrimSpace(strings.TrimPrefix(first, "#"))
	}
	about = view.Counted(int64(files), "file")
	box, err := d.box.Open(ctx, sandbox.Spec{Dir: dir, MinIsolation: sandbox.IsolationProcess, Owner: "demo"})
	if err != nil {
		return title, about + ", tests not run: " + term.Line(err.Error(), 40)
	}
	exit, err := box.Exec(ctx, sandbox.Cmd{ID: "header", Argv: []string{"/bin/sh", "test.sh"}, Timeout: 20 * time.Second})
	err = errors.Join(err, box.Close())
	if err != nil {
		return title, about + ", tests not run: " + term.Line(err.Error(), 40)
	}
	tests, red := 0, 0
	for line := range strings.Lines(string(exit.Stdout.Bytes())) {
		switch {
		case strings.HasPrefix(line, "green "):
			tests++
		case strings.HasPrefix(line, "red "):
			tests++
			red++
		}
	}
	return title, fmt.Sprintf("%s, %s, %d red", about, view.Counted(int64(tests), "test"), red)
}

// footer writes the proof and suggests the next commands.
func (d *demonstration) footer(ctx context.Context, s *app.System, id run.ID, r *messages.Result) error {
	info, err := s.Runs.Get(ctx, id)
	if err != nil {
		return err
	}
	e, err := evidence.Collect(ctx, d.App, s, &info)
	if err != nil {
		return err
	}
	facts, err := dossier.Read(e)
	if err != nil {
		return err
	}
	n := facts.Numbers
	elapsed := time.Since(d.start)
	d.Out.Println(d.tail("done", fmt.Sprintf("%s  %s  %s  %s  %s  %s", view.Took(elapsed), view.Counted(n.Sessions, "session"), view.Counted(n.Commits, "commit"),
		view.Counted(n.ModelCalls, "model call"), view.Counted(n.ToolCalls, "tool call"), view.Counted(n.Tokens, "token"))))
	name := filepath.Join(d.Config.Store.Value, "dossiers", "run-"+string(id[:min(len(id), 8)])+".html")
	page, err := dossier.HTML(e)
	if err != nil {
		return err
	}
	if err := evidence.ReplaceFile(name, page); err != nil {
		return err
	}
	last, err := s.Log.Last(ctx, e.Home)
	if err != nil {
		return err
	}
	// The file on the disk is verified, against the log's own head.
	written, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if _, err := dossier.Verify(written, &dossier.VerifyOptions{Head: last.At.Hash}); err != nil {
		return fmt.Errorf("demo: the proof does not hold: %w", err)
	}
	shown := name
	if !filepath.IsAbs(shown) {
		shown = "./" + filepath.ToSlash(shown)
	}
	d.Out.Println(d.tail("proof", fmt.Sprintf("%s  chain head %s..  (rath verify: ok)", shown, last.At.Hash.String()[:6])))
	d.next(facts)
	if err := r.Err(); err != nil {
		return app.WithCode(app.StateCode(r.State), err)
	}
	return nil
}

func (d *demonstration) tail(name, text string) string {
	return d.Out.Paint(term.Bold, term.Pad(name, 5)) + " " + text
}

// next prints commands that work exactly as printed.
func (d *demonstration) next(f *dossier.Facts) {
	var hints []string
	if at := firstAdded(f); at != "" {
		hints = append(hints, d.Hint("why", "@last:"+at))
	}
	hints = append(hints, d.Hint("show", "@last", "--tree"))
	if !d.o.crash {
		hints = append(hints, d.Hint("demo", "--crash"))
	}
	if line := strings.Join(hints, "  |  "); len(line)+6 <= 80 {
		d.Out.Println(d.tail("next", line))
		return
	}
	for i, h := range hints {
		name := ""
		if i == 0 {
			name = "next"
		}
		d.Out.Println(d.tail(name, h))
	}
}

// firstAdded returns the first line that the adopted change added, or else the first
// one that it replaced.
func firstAdded(f *dossier.Facts) string {
	first := ""
	for _, file := range f.Changes.Files {
		for _, h := range file.Hunks {
			gone := 0 // removed lines that no new line has taken the place of yet
			for _, l := range h.Lines {
				switch {
				case l.Op == "-":
					gone++
				case l.Op != "+" || strings.TrimSpace(l.Text) == "":
					gone = 0
				case gone > 0:
					gone--
					first = cmp.Or(first, fmt.Sprintf("%s:%d", file.Path, l.New))
				default:
					return fmt.Sprintf("%s:%d", file.Path, l.New)
				}
			}
		}
	}
	return first
}

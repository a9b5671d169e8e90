package evidence

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/dossier"
	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/internal/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// maxDossier bounds what verify reads into memory.
const maxDossier = dossier.MaxTreeFile

// Verify is the command "verify".
func Verify(a *app.App) *cobra.Command {
	var head string
	var require bool
	cmd := &cobra.Command{
		Use:   "verify FILE|DIR...",
		Short: "Check a dossier or an archive without a server",
		Long: `Recomputes every hash chain, every reference between sessions and every digest
of a dossier, renders it again and compares it byte for byte; or of an archive
that "cluster prune" wrote, and of all archives in a directory. It needs no
server and no store.

A document that was cut at its end, or rewritten as a whole, holds together
too: --head compares the last commit of the home session, of an archive that of
its root, with a hash that you know from elsewhere, and closes that. Without it
the document is called consistent, not anchored, and --require-anchor fails.

What the commits tell, nothing in the document may state otherwise. What they do
not tell, such as the release that wrote it, is listed as stated, not verified.

Exit code 1 if something does not hold: the message names the first bad commit.
Of several files all are checked; --format json then writes a list.`,
		Example: `  rath verify .rath/dossiers/run-7f3a.html
  rath verify run.json --head 5be1c0d2...
  rath verify .rath/archives
  rath verify - < run.md`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > 1 && head != "" {
				return app.Usage(cmd, fmt.Errorf("verify takes files, or one file with --head, got %d", len(args)))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			var names []string
			many := len(args) > 1
			for _, name := range args {
				archives, err := archivesIn(name)
				if err != nil {
					return err
				}
				many = many || !slices.Equal(archives, []string{name})
				names = append(names, archives...)
			}
			if many {
				return verifyAll(a, names, require)
			}
			v, err := verify(a, names[0], head, require)
			if err != nil {
				return err
			}
			if done, err := app.EmitOne(a, v.view); done {
				return err
			}
			verified(a, v.text(true))
			return nil
		},
	}
	cmd.Flags().StringVar(&head, "head", "", "hash that the home session's last commit must have")
	cmd.Flags().BoolVar(&require, "require-anchor", false, "fail if no last commit was compared with a hash from elsewhere")
	return cmd
}

// checked is a document that holds.
type checked struct {
	view any // for programs
	// text tells it to people; alone tells too what was not compared.
	text     func(alone bool) string
	anchored bool // that was compared
	archive  bool
}

func verified(a *app.App, text string) {
	a.Out.Println(a.Out.Paint(term.Green, strings.TrimSpace(term.Clean(text))))
}

// verifyAll checks several files, to the last one, and tells once of all of them
// what a report tells of one.
func verifyAll(a *app.App, names []string, require bool) error {
	var views []any
	bad, code, loose, archives := 0, 0, 0, false
	for _, name := range names {
		v, err := verify(a, name, "", require)
		if err != nil {
			a.Err.Println(a.Err.Paint(term.Red, "rath:") + " " + term.Clean(messages.Text(err)))
			if bad++; code != app.ExitFailed { // that something does not hold weighs most
				code = app.CodeOf(err)
			}
			continue
		}
		views = append(views, v.view)
		if !a.AsJSON() {
			verified(a, v.text(false))
		}
		if !v.anchored {
			loose, archives = loose+1, archives || v.archive
		}
	}
	if _, err := app.Emit(a, views); err != nil {
		return err
	}
	if loose > 0 {
		example := ""
		if archives {
			example = ", such as that of a tombstone"
		}
		a.Remark("of %s no last commit was compared with a hash from elsewhere\n(--head, with one file)%s: all of it could be written anew", view.Counted(int64(loose), "file"), example)
	}
	if bad > 0 {
		return app.Fail(code, "%d of %s did not verify", bad, view.Counted(int64(len(names)), "file"))
	}
	return nil
}

// verify checks a file; the error names it.
func verify(a *app.App, name, head string, require bool) (checked, error) {
	v, err := check(a, name, head)
	if err == nil && require && !v.anchored {
		err = app.Fail(app.ExitFailed, "consistent, not anchored: no last commit was compared with a hash from elsewhere; give --head, from a result of the run or from its tombstone")
	}
	if err != nil && name != "-" && !strings.Contains(err.Error(), name) {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return v, err
}

func check(a *app.App, name, head string) (checked, error) {
	doc, err := a.ReadInput(name, maxDossier)
	if err != nil {
		return checked{}, err
	}
	o := &dossier.VerifyOptions{}
	if head != "" {
		if err := o.Head.UnmarshalText([]byte(strings.ToLower(head))); err != nil {
			return checked{}, app.Fail(app.ExitUsage, "verify: --head: want the 64 hexadecimal digits of a commit's hash: %w", err)
		}
		if o.Head == (session.Hash{}) {
			return checked{}, app.Fail(app.ExitUsage, "verify: --head: no commit has a hash of zeros")
		}
	}
	if dossier.IsTree(doc) {
		return verifyTree(doc, o)
	}
	report, err := dossier.Verify(doc, o)
	if err != nil {
		return checked{}, err
	}
	view := struct {
		OK       bool            `json:"ok"`
		Form     string          `json:"form"`
		Run      string          `json:"run"`
		Tenant   string          `json:"tenant"`
		Home     string          `json:"home"`
		State    string          `json:"state"`
		Verdict  string          `json:"verdict"`
		Commits  int             `json:"commits"`
		Blobs    int             `json:"blobs"`
		Anchored bool            `json:"anchored"`
		Sessions []dossier.Chain `json:"sessions"`
		// Stated is what the document says and nothing in it proves.
		Stated []dossier.Fact `json:"stated,omitempty"`
	}{true, report.Form, string(report.Run), string(report.Home.Tenant), string(report.Home.ID), string(report.State), report.Verdict, report.Commits, report.Blobs, report.Anchored > 0, report.Sessions, report.Stated}
	return checked{view: view, anchored: report.Anchored > 0, text: report.Text}, nil
}

// archivesIn lists the archives in a directory; a file is one name.
func archivesIn(name string) ([]string, error) {
	if fi, err := os.Stat(name); name == "-" || err != nil || !fi.IsDir() {
		return []string{name}, nil // what reads it says what is wrong
	}
	archives, _, err := importNames([]string{name})
	if err == nil && len(archives) == 0 {
		err = app.Fail(app.ExitNotFound, "there are no archives in %s; dossiers are verified by the names of their files", name)
	}
	return archives, err
}

func verifyTree(doc []byte, o *dossier.VerifyOptions) (checked, error) {
	_, r, err := dossier.VerifyTree(doc, o)
	if err != nil {
		return checked{}, err
	}
	view := struct {
		OK       bool            `json:"ok"`
		Form     string          `json:"form"`
		Tenant   session.Tenant  `json:"tenant"`
		Root     session.ID      `json:"root"`
		Commits  int             `json:"commits"`
		Blobs    int             `json:"blobs"`
		Left     int             `json:"left"`
		Anchored int             `json:"anchored"`
		Sessions []dossier.Chain `json:"sessions"`
		Stated   []dossier.Fact  `json:"stated,omitempty"`
	}{true, dossier.FormTree, r.Home.Tenant, r.Home.ID, r.Commits, r.Blobs, r.Left, r.Anchored, r.Sessions, r.Stated}
	return checked{view: view, anchored: r.Anchored > 0, archive: true, text: r.Text}, nil
}

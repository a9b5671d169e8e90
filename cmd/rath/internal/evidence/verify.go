package evidence

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/evidence/signature"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// maxDossier bounds the bytes that verify reads into memory.
const maxDossier = dossier.MaxTreeFile

// Verify is the command "verify".
func Verify(a *app.App) *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use:   "verify FILE|DIR|RUN...",
		Short: "Verify a dossier, an archive or a run, without a server",
		Long: `Recomputes every hash chain, every reference between sessions and every digest
of a dossier, renders it again and compares it byte for byte; or checks an
archive of "cluster prune", or all archives of a directory. A file needs no
server and no store; for a run the evidence is collected first.

A document truncated at its end, or rewritten as a whole, is consistent too.
--signers detects this: each ended run must have a signature by a key of this
file, in the form of ssh-keygen's allowed_signers, and by none of --revoked,
which are public keys or a list of ssh-keygen -k. A key must be valid at the end
of the run. Nodes sign; --print-signers prints the line of this store's node,
and --extract writes the input of ssh-keygen -Y verify. --head compares the last
commit of the home session, or of an archive's root, with a hash from another
source. Without either the document is "consistent, not anchored", and
--require-anchor fails.

The document must agree with the commits. Statements the commits do not prove,
such as the release that wrote it, are listed as stated, not verified.

Exit code 1 if a check fails: the message names the first bad commit. All given
files are checked; --format json then writes a list.`,
		Example: `  rath verify .rath/dossiers/run-7f3a.html
  rath verify run.json --head 5be1c0d2...
  rath verify --print-signers > signers
  rath verify run.html --signers signers
  rath verify .rath/archives
  rath verify - < run.md`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case f.print && len(args) > 0:
				return app.Usage(cmd, errors.New("verify --print-signers takes no file"))
			case f.print:
			case len(args) == 0 || len(args) > 1 && f.head != "":
				return app.Usage(cmd, fmt.Errorf("verify takes files, or one file with --head, got %d", len(args)))
			case f.revoked != "" && f.signers == "":
				return app.Usage(cmd, errors.New("verify --revoked needs --signers"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.print {
				return printSigners(a)
			}
			trust, err := trusted(a, f.signers, f.revoked)
			if err != nil {
				return err
			}
			v := verifier{cmd.Context(), a, f, trust}
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
				return v.all(names)
			}
			one, err := v.verify(names[0])
			if err != nil {
				return err
			}
			if done, err := app.EmitOne(a, one.view); done {
				return err
			}
			verified(a, one.text(true))
			return nil
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.signers, "signers", "", "file of trusted keys, as allowed_signers of ssh-keygen")
	fs.StringVar(&f.revoked, "revoked", "", "file of revoked keys, as for ssh-keygen -r")
	fs.StringVar(&f.head, "head", "", "expected hash of the home session's last commit")
	fs.BoolVar(&f.require, "require-anchor", false, "fail without a verified signature or last commit")
	fs.StringVar(&f.extract, "extract", "", "write the signed data and the signatures to this directory")
	fs.BoolVar(&f.print, "print-signers", false, "print the key of this store for --signers")
	return cmd
}

// verifyFlags are the flags of verify.
type verifyFlags struct {
	signers, revoked, head, extract string
	require, print                  bool
}

// verifier checks documents.
type verifier struct {
	ctx   context.Context //nolint:containedctx // of the one command
	a     *app.App
	f     verifyFlags
	trust *signature.Trust // nil without a list of signers
}

// checked is a verified document.
type checked struct {
	view any // for programs
	// text is the report for people; with alone it also lists the checks that were
	// skipped.
	text     func(alone bool) string
	anchored bool // the comparison with an anchor was made
	archive  bool
}

func verified(a *app.App, text string) {
	a.Out.Println(a.Out.Paint(term.Green, strings.TrimSpace(term.Clean(text))))
}

// all checks several files, continues after failures, and prints a sum of the facts
// that a report shows for one file.
func (v verifier) all(names []string) error {
	a := v.a
	var views []any
	bad, code, loose, archives := 0, 0, 0, false
	for _, name := range names {
		one, err := v.verify(name)
		if err != nil {
			a.Err.Println(a.Err.Paint(term.Red, "rath:") + " " + term.Clean(messages.Text(err)))
			if bad++; code != app.ExitFailed { // a failed verification outweighs other errors
				code = app.CodeOf(err)
			}
			continue
		}
		views = append(views, one.view)
		if !a.AsJSON() {
			verified(a, one.text(false))
		}
		if !one.anchored {
			loose, archives = loose+1, archives || one.archive
		}
	}
	if _, err := app.Emit(a, views); err != nil {
		return err
	}
	if loose > 0 {
		example := ""
		if archives {
			example = ", such as a tombstone's"
		}
		a.Remark("%s without a verified signature (--signers) or last commit (--head, with\none file%s): the whole document could be rewritten", view.Counted(int64(loose), "file"), example)
	}
	if bad > 0 {
		return app.Fail(code, "%d of %s did not verify", bad, view.Counted(int64(len(names)), "file"))
	}
	return nil
}

// verify checks a file; the error names it.
func (v verifier) verify(name string) (checked, error) {
	one, err := v.check(name)
	if err == nil && v.f.require && !one.anchored {
		err = app.Fail(app.ExitFailed, "consistent, not anchored: no signature and no last commit was verified; give --signers, or --head from a result of the run or from its tombstone")
	}
	if err != nil && name != "-" && !strings.Contains(err.Error(), name) {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return one, err
}

func (v verifier) check(name string) (checked, error) {
	doc, err := v.read(name)
	if err != nil {
		return checked{}, err
	}
	o := &dossier.VerifyOptions{Trust: v.trust}
	if head := v.f.head; head != "" {
		if err := o.Head.UnmarshalText([]byte(strings.ToLower(head))); err != nil {
			return checked{}, app.Fail(app.ExitUsage, "verify: --head: want the 64 hexadecimal digits of a commit's hash: %w", err)
		}
		if o.Head == (session.Hash{}) {
			return checked{}, app.Fail(app.ExitUsage, "verify: --head: no commit has a hash of zeros")
		}
	}
	if dossier.IsTree(doc) {
		return v.tree(doc, o)
	}
	report, err := dossier.Verify(doc, o)
	if err != nil {
		return checked{}, err
	}
	if err := v.extract(doc, report.Signed); err != nil {
		return checked{}, err
	}
	view := struct {
		OK       bool             `json:"ok"`
		Form     string           `json:"form"`
		Run      string           `json:"run"`
		Tenant   string           `json:"tenant"`
		Home     string           `json:"home"`
		State    string           `json:"state"`
		Verdict  string           `json:"verdict"`
		Commits  int              `json:"commits"`
		Blobs    int              `json:"blobs"`
		Anchored bool             `json:"anchored"`
		Sessions []dossier.Chain  `json:"sessions"`
		Signed   []dossier.Signed `json:"signed"`
		// Stated holds the facts that the document states without proof.
		Stated []dossier.Fact `json:"stated,omitempty"`
	}{true, report.Form, string(report.Run), string(report.Home.Tenant), string(report.Home.ID), string(report.State), report.Verdict, report.Commits, report.Blobs, report.Anchored > 0, report.Sessions, append([]dossier.Signed{}, report.Signed...), report.Stated}
	return checked{view: view, anchored: report.Anchored > 0, text: report.Text}, nil
}

// archivesIn lists the archives in a directory; a file is one name.
func archivesIn(name string) ([]string, error) {
	if fi, err := os.Stat(name); name == "-" || err != nil || !fi.IsDir() {
		return []string{name}, nil // the reader of the file reports the error
	}
	archives, _, err := namedFiles([]string{name})
	if err == nil && len(archives) == 0 {
		err = app.Fail(app.ExitNotFound, "there are no archives in %s; dossiers are verified by the names of their files", name)
	}
	return archives, err
}

func (v verifier) tree(doc []byte, o *dossier.VerifyOptions) (checked, error) {
	_, r, err := dossier.VerifyTree(doc, o)
	if err != nil {
		return checked{}, err
	}
	if err := v.extract(doc, r.Signed); err != nil {
		return checked{}, err
	}
	view := struct {
		OK       bool             `json:"ok"`
		Form     string           `json:"form"`
		Tenant   session.Tenant   `json:"tenant"`
		Root     session.ID       `json:"root"`
		Commits  int              `json:"commits"`
		Blobs    int              `json:"blobs"`
		Left     int              `json:"left"`
		Anchored int              `json:"anchored"`
		Sessions []dossier.Chain  `json:"sessions"`
		Signed   []dossier.Signed `json:"signed"`
		Stated   []dossier.Fact   `json:"stated,omitempty"`
	}{true, dossier.FormTree, r.Home.Tenant, r.Home.ID, r.Commits, r.Blobs, r.Left, r.Anchored, r.Sessions, append([]dossier.Signed{}, r.Signed...), r.Stated}
	return checked{view: view, anchored: r.Anchored > 0, archive: true, text: r.Text}, nil
}

// read returns a document: a file, or the evidence of a named run.
func (v verifier) read(name string) ([]byte, error) {
	doc, err := v.a.ReadInput(name, maxDossier)
	if !errors.Is(err, fs.ErrNotExist) || strings.ContainsAny(name, `/\.`) {
		return doc, err
	}
	err = v.a.With(v.ctx, func(s *app.System) error {
		r, err := reference.Run(v.ctx, s, name)
		if err != nil {
			return err
		}
		e, err := Collect(v.ctx, v.a, s, &r)
		if err != nil {
			return err
		}
		doc, err = e.Encode()
		return err
	})
	if app.CodeOf(err) == app.ExitNotFound {
		return nil, app.Fail(app.ExitNotFound, "%s is no file, and no run: %w", name, err)
	}
	return doc, err
}

// extract writes the signed texts, and each signature, for ssh-keygen.
func (v verifier) extract(doc []byte, signed []dossier.Signed) error {
	dir := v.f.extract
	if dir == "" {
		return nil
	}
	if len(signed) == 0 {
		return app.Fail(app.ExitNotFound, "no statement is signed, so none can be extracted")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	all, err := dossier.Signatures(doc)
	if err != nil {
		return err
	}
	for i, s := range signed {
		name := filepath.Join(dir, fmt.Sprintf("%s-%d", s.Run, i+1))
		for file, text := range map[string]string{name: all[i].Statement, name + ".sig": all[i].Signature} {
			old, err := os.ReadFile(file)
			if err == nil && !bytes.Equal(old, []byte(text)) {
				return app.Fail(app.ExitFailed, "%s exists with other content; name another directory", file)
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				return err
			}
		}
		principal, _, _ := strings.Cut(cmp.Or(s.Signer, "NAME"), ",")
		v.a.Remark("ssh-keygen -Y verify -f %s -I %s -n %s -Overify-time=%s -s %s.sig < %s",
			cmp.Or(v.f.signers, "SIGNERS"), principal, signature.Namespace, s.Ended.UTC().Truncate(time.Second).Format("20060102150405Z"), name, name)
	}
	return nil
}

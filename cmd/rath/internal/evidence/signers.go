package evidence

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/internal/dossier"
	"github.com/rathcluster/rath/internal/signature"
)

// signerName is the name of a store's key in the list that is printed of it.
const signerName = "rath"

// trusted reads who may sign; nil without a file of signers.
func trusted(a *app.App, signers, revoked string) (*signature.Trust, error) {
	if signers == "" {
		return nil, nil
	}
	list, err := a.ReadInput(signers, signature.MaxList)
	if err != nil {
		return nil, fmt.Errorf("--signers: %w", err)
	}
	var gone []byte
	if revoked != "" {
		if gone, err = a.ReadInput(revoked, signature.MaxList); err != nil {
			return nil, fmt.Errorf("--revoked: %w", err)
		}
	}
	trust, err := signature.ParseTrust(list, gone)
	if err != nil {
		return nil, app.Fail(app.ExitUsage, "verify: %w", err)
	}
	return trust, nil
}

// printSigners prints the public half of the store's key.
func printSigners(a *app.App) error {
	if a.Ambient() {
		return app.Fail(app.ExitUsage, "--print-signers prints the key of a store; of nodes on a server the operator has the keys: "+
			"each is a line of a name, namespaces=\"rath\" and what ssh-keygen -y -f KEY prints")
	}
	file := filepath.Join(a.Config.Store.Value, signature.StoreFile)
	key, err := signature.Load(file)
	if errors.Is(err, fs.ErrNotExist) {
		return app.Fail(app.ExitNotFound, "%s is not there yet: a node makes it when it starts on the store, as %q does", file, a.Hint("run"))
	}
	if err != nil {
		return err
	}
	line := key.Signer(signerName)
	if done, err := app.EmitOne(a, struct {
		Signers string `json:"signers"`
		Key     string `json:"key"`
	}{line, key.Fingerprint()}); done {
		return err
	}
	a.Out.Printf("%s", line)
	return nil
}

// read returns a document: a file, or the evidence of a run that is named.
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

// extract writes what was signed, and each signature, for ssh-keygen.
func (v verifier) extract(doc []byte, signed []dossier.Signed) error {
	dir := v.f.extract
	if dir == "" {
		return nil
	}
	if len(signed) == 0 {
		return app.Fail(app.ExitNotFound, "nothing is signed, so there is nothing to extract")
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
				return app.Fail(app.ExitFailed, "%s is there already and holds something else; name another directory", file)
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

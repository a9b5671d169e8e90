package evidence

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/evidence/signature"
)

// signerName is the name of a store's key in the printed list of signers.
const signerName = "rath"

// trusted reads the trusted signers; nil without a file of signers.
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
			"each line has a name, namespaces=\"rath\" and the output of ssh-keygen -y -f KEY")
	}
	file := filepath.Join(a.Config.Store.Value, signature.StoreFile)
	key, err := signature.Load(file)
	if errors.Is(err, fs.ErrNotExist) {
		return app.Fail(app.ExitNotFound, "%s does not exist yet: a node creates it on its start over the store, such as %q", file, a.Hint("run"))
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

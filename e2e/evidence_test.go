//go:build e2e && linux

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestEvidenceIsSigned verifies a run's evidence with rath and, by the command that rath
// prints, with ssh-keygen, before and after a change of one signed byte; then with the
// operator's own key, which is revoked.
func TestEvidenceIsSigned(t *testing.T) {
	d := newDesk(t)
	d.rath("run", "-m", "hello", "--id", "one").want(t, 0)
	d.file("signers", d.rath("verify", "--print-signers").stdout)
	d.rath("export", "one", "--dossier", "html", "--out", "one.html").want(t, 0)
	out := d.rath("verify", "one.html", "--signers", "signers", "--require-anchor", "--extract", "signed")
	out.want(t, 0, "verified: run one", "by rath, SHA256:")
	_, line, ok := strings.Cut(out.stderr, "ssh-keygen")
	if !ok {
		t.Fatalf("no command of ssh-keygen is printed: %v", out)
	}
	check := "ssh-keygen " + strings.TrimSpace(line)
	d.typed(check).want(t, 0, `Good "rath" signature for rath`)
	said := filepath.Join(d.dir, "signed", "one-1")
	statement := must.Get(os.ReadFile(said))(t)
	d.file(filepath.Join("signed", "one-1"), strings.Replace(string(statement), "state succeeded", "state failed", 1))
	d.typed(check).want(t, 255)

	// The operator signs with a key of ssh-keygen's.
	command(t, d.dir, d.env, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "ops")
	public := must.Get(os.ReadFile(filepath.Join(d.dir, "ops.pub")))(t)
	d.file("operators", "ops@example.com "+string(public))
	d.rath("export", "one", "--dossier", "json", "--sign", "ops", "--out", "one.json").want(t, 0)
	d.rath("verify", "one.json", "--signers", "operators").want(t, 0, "verified", "by ops@example.com", "signed and not counted")
	command(t, d.dir, d.env, "ssh-keygen", "-k", "-q", "-f", "revoked", "ops.pub")
	d.rath("verify", "one.json", "--signers", "operators", "--revoked", "revoked").want(t, 1, "the key is revoked")
}

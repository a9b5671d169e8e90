//go:build e2e

package signature_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/evidence/signature"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// keygen runs ssh-keygen, which must be installed.
func keygen(t *testing.T, input string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "ssh-keygen", args...)
	cmd.Stdin = strings.NewReader(input)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if _, refused := err.(*exec.ExitError); err != nil && !refused { //nolint:errorlint // Run returns it as it is
		t.Fatalf("ssh-keygen: %v", err)
	}
	return out.String(), err
}

// TestAgreesWithSSH checks that ssh-keygen and this package accept the same signatures of
// either program, for the same lists at the same time.
func TestAgreesWithSSH(t *testing.T) {
	const statement = "rath run 1\nrun one\n"
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		must.Do(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	public := map[string]string{}
	made := map[string]*signature.Key{}
	for _, kind := range []string{"ed25519", "ecdsa", "rsa", "other"} {
		name, typ := filepath.Join(dir, kind), kind
		if kind == "other" {
			typ = "ed25519"
		}
		if out, err := keygen(t, "", "-q", "-t", typ, "-N", "", "-C", kind, "-f", name); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		text := must.Get(os.ReadFile(name + ".pub"))(t)
		public[kind] = string(text)
		made[kind] = must.Get(signature.Load(name))(t)
	}
	krl := func(keys ...string) string {
		name := filepath.Join(dir, "krl-"+strings.Join(keys, "-"))
		args := []string{"-k", "-q", "-f", name}
		for _, k := range keys {
			args = append(args, filepath.Join(dir, k)+".pub")
		}
		if out, err := keygen(t, "", args...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		text := must.Get(os.ReadFile(name))(t)
		return string(text)
	}
	for _, kind := range []string{"ed25519", "ecdsa", "rsa"} {
		key, other := public[kind], public["other"]
		message := file(kind+"-message", statement)
		if out, err := keygen(t, "", "-q", "-Y", "sign", "-n", signature.Namespace, "-f", filepath.Join(dir, kind), message); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		theirs := must.Get(os.ReadFile(message + ".sig"))(t)
		ours := must.Get(made[kind].Sign(statement))(t)
		for by, armored := range map[string]string{"ssh-keygen": string(theirs), "us": ours} {
			for name, c := range map[string]struct {
				signers, revoked, statement string
				want                        bool
			}{
				"listed":              {signers: "ops " + key, want: true},
				"our namespace":       {signers: `ops namespaces="git,rath" ` + key, want: true},
				"a pattern":           {signers: `ops namespaces="r?t*" ` + key, want: true},
				"another namespace":   {signers: `ops namespaces="git" ` + key},
				"a negated one":       {signers: `ops namespaces="*,!rath" ` + key},
				"unknown":             {signers: "ops " + other},
				"over something else": {signers: "ops " + key, statement: statement + "\n"},
				"valid until then":    {signers: `ops valid-before="20261124173000Z" ` + key, want: true},
				"not any more":        {signers: `ops valid-before="20261124172959Z" ` + key},
				"valid from then on":  {signers: `ops valid-after="20261124173000Z" ` + key, want: true},
				"not yet":             {signers: `ops valid-after="20261124173001Z" ` + key},
				"rotated":             {signers: `ops valid-before="202612010000Z" ` + key + "ops " + other, want: true},
				"revoked":             {signers: "ops " + key, revoked: key},
				"another is revoked":  {signers: "ops " + key, revoked: other, want: true},
				"revoked by a list":   {signers: "ops " + key, revoked: krl(kind, "other")},
				"another by a list":   {signers: "ops " + key, revoked: krl("other"), want: true},
			} {
				said := statement
				if c.statement != "" {
					said = c.statement
				}
				args := []string{
					"-Y", "verify", "-I", "ops", "-n", signature.Namespace, "-Overify-time=20261124173000Z",
					"-f", file("signers", c.signers), "-s", file("sig", armored),
				}
				if c.revoked != "" {
					args = append(args, "-r", file("revoked", c.revoked))
				}
				out, err := keygen(t, said, args...)
				if (err == nil) != c.want {
					t.Errorf("%s signed by %s, %s: ssh-keygen says %v: %s", kind, by, name, err, out)
				}
				if err := accept(said, armored, c.signers, c.revoked); (err == nil) != c.want {
					t.Errorf("%s signed by %s, %s: we say %v", kind, by, name, err)
				}
			}
		}
	}
}

func accept(statement, armored, signers, revoked string) error {
	by, err := signature.Check(statement, armored)
	if err != nil {
		return err
	}
	trust, err := signature.ParseTrust([]byte(signers), []byte(revoked))
	if err != nil {
		return err
	}
	_, err = trust.Accept(by, ended.Truncate(time.Second))
	return err
}

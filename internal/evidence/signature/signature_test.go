package signature_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hiddeco/sshsig"

	"github.com/rathcluster/rath/internal/evidence/signature"
	"github.com/rathcluster/rath/internal/testkit/must"
)

func newKey(t *testing.T) *signature.Key {
	t.Helper()
	k := must.Get(signature.Open(filepath.Join(t.TempDir(), signature.StoreFile)))(t)
	return k
}

func sign(t *testing.T, k *signature.Key, statement string) string {
	t.Helper()
	s := must.Get(k.Sign(statement))(t)
	return s
}

// public returns the line of a key without a name and options.
func public(k *signature.Key) string {
	_, rest, _ := strings.Cut(k.Signer("x"), `"rath" `)
	return rest
}

var ended = time.Date(2026, 11, 24, 17, 30, 0, 900e6, time.UTC)

func TestOpen(t *testing.T) {
	file := filepath.Join(t.TempDir(), signature.StoreFile)
	one := must.Get(signature.Open(file))(t)
	two := must.Get(signature.Open(file))(t)
	if one.Fingerprint() != two.Fingerprint() {
		t.Errorf("a second start signs with %s, the first with %s", two.Fingerprint(), one.Fingerprint())
	}
	fi := must.Get(os.Stat(file))(t)
	if os.PathSeparator == '/' && fi.Mode().Perm() != 0o600 { // Windows has no such modes
		t.Errorf("the private key has mode %v", fi.Mode())
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
		t.Errorf("beside the key lies %v (%v)", left, err)
	}
	for name, text := range map[string]string{"empty": "", "no key": "hello", "large": strings.Repeat("x", 1<<20)} {
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
		if _, err := signature.Open(file); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: error %v, want one that names the file", name, err)
		}
	}
}

// TestCheck checks that a signature is valid for one statement, and has one form.
func TestCheck(t *testing.T) {
	k := newKey(t)
	good := sign(t, k, "run one\n")
	by, err := signature.Check("run one\n", good)
	if err != nil || by.Fingerprint() != k.Fingerprint() {
		t.Fatalf("signed by %s (%v), want %s", by.Fingerprint(), err, k.Fingerprint())
	}
	if s, err := sshsig.Unarmor([]byte(good)); err != nil || string(sshsig.Armor(s)) != good {
		t.Fatalf("it is written as %q (%v)", good, err)
	}
	body := strings.Split(good, "\n")
	for name, c := range map[string]struct{ statement, signature string }{
		"another statement": {"run two\n", good},
		"truncated":         {"run one\n", strings.Join(append(body[:2:2], body[len(body)-2:]...), "\n")},
		"cut off":           {"run one\n", good[:len(good)/2]},
		"empty":             {"run one\n", ""},
		"more than one":     {"run one\n", good + "and more"},
		"with a header":     {"run one\n", strings.Replace(good, "\n", "\nx: y\n\n", 1)},
		"oversized":         {"run one\n", good + strings.Repeat("\n", 1<<20)},
		"altered":           {"run one\n", strings.Replace(good, body[3][:4], "AAAA", 1)},
	} {
		if _, err := signature.Check(c.statement, c.signature); !errors.Is(err, signature.ErrInvalid) {
			t.Errorf("%s: error %v, want ErrInvalid", name, err)
		}
	}
}

// TestTrust checks listed, expired and revoked keys.
func TestTrust(t *testing.T) {
	old, now, other := newKey(t), newKey(t), newKey(t)
	for name, c := range map[string]struct {
		signers, revoked string
		want             error
		by               string
	}{
		"listed":             {old.Signer("ops@example.com"), "", nil, "ops@example.com"},
		"any namespace":      {"ops " + public(old), "", nil, "ops"},
		"quoted names":       {`"ops,dev" ` + public(old), "", nil, "ops,dev"},
		"patterns":           {`ops namespaces="git,r?t*" ` + public(old), "", nil, "ops"},
		"not ours":           {`ops namespaces="git" ` + public(old), "", signature.ErrUnknown, ""},
		"not ours by name":   {`ops namespaces="*,!rath" ` + public(old), "", signature.ErrUnknown, ""},
		"unknown":            {now.Signer("ops"), "", signature.ErrUnknown, ""},
		"revoked":            {old.Signer("ops"), "# gone\n\n" + public(old), signature.ErrRevoked, ""},
		"another is revoked": {old.Signer("ops"), public(other), nil, "ops"},
		"too late":           {`ops valid-before="20261124172959Z" ` + public(old), "", signature.ErrTime, ""},
		"in its last second": {`ops valid-before="20261124173000Z" ` + public(old), "", nil, "ops"},
		"too early":          {`ops valid-after="20261125Z" ` + public(old), "", signature.ErrTime, ""},
		"rotated":            {"# keys\n" + `ops valid-before="202612010000Z" ` + public(old) + `ops valid-after="20261201Z" ` + public(now), "", nil, "ops"},
		"rotated before":     {`ops valid-before="20261001Z" ` + public(old) + "ops " + public(now), "", signature.ErrTime, ""},
		"the second line":    {`a valid-before="20261001Z" ` + public(old) + "b " + public(old), "", nil, "b"},
	} {
		by, err := signature.Check("x", sign(t, old, "x"))
		must.Do(t, err)
		trust, err := signature.ParseTrust([]byte(c.signers), []byte(c.revoked))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := trust.Accept(by, ended); got != c.by || !errors.Is(err, c.want) {
			t.Errorf("%s: signed by %q (%v), want %q (%v)", name, got, err, c.by, c.want)
		}
	}
}

func TestBadLists(t *testing.T) {
	k := newKey(t)
	for name, c := range map[string]struct{ signers, revoked, want string }{
		"empty":            {"# nothing\n", "", "names no key"},
		"no key":           {"ops\n", "", "line 1"},
		"a private key":    {k.Signer("a") + "-----BEGIN OPENSSH PRIVATE KEY-----\n", "", "line 2"},
		"authority":        {"ops cert-authority " + public(k), "", "certificates are not taken"},
		"an unknown word":  {"ops no-pty " + public(k), "", "not known"},
		"nobody":           {"!rath " + public(k), "", "stand for nobody"},
		"a date":           {`ops valid-before="tomorrow" ` + public(k), "", "YYYYMMDD"},
		"oversized":        {strings.Repeat("# more\n", 1<<18), "", "at most"},
		"revoked rubbish":  {k.Signer("a"), "hello\n", "line 1"},
		"revoked is large": {k.Signer("a"), strings.Repeat("#\n", 1<<20), "at most"},
		"a list cut off":   {k.Signer("a"), "SSHKRL\n\x00\x00\x00\x00\x01", "damaged"},
		"a later list":     {k.Signer("a"), "SSHKRL\n\x00\x00\x00\x00\x02", "version 2"},
	} {
		if _, err := signature.ParseTrust([]byte(c.signers), []byte(c.revoked)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
	}
}

// TestRevocationList reads a list in the binary form of ssh-keygen -k: a key by its
// bytes, or by one of its digests.
func TestRevocationList(t *testing.T) {
	k := newKey(t)
	by := must.Get(signature.Check("x", sign(t, k, "x")))(t)
	raw := must.Get(base64.StdEncoding.DecodeString(strings.Fields(public(k))[1]))(t)
	text := func(b []byte) []byte { return append([]byte{0, 0, byte(len(b) >> 8), byte(len(b))}, b...) }
	list := func(kind byte, keys ...[]byte) []byte {
		var section []byte
		for _, k := range keys {
			section = append(section, text(k)...)
		}
		head := append([]byte("SSHKRL\n\x00\x00\x00\x00\x01"), make([]byte, 24)...)
		return slices.Concat(head, text(nil), text([]byte("gone")), []byte{1}, text([]byte("a certificate")), []byte{kind}, text(section))
	}
	other := bytes.Repeat([]byte{7}, 32)
	sum := must.Get(base64.RawStdEncoding.DecodeString(strings.TrimPrefix(k.Fingerprint(), "SHA256:")))(t)
	for name, c := range map[string]struct {
		list []byte
		want error
	}{
		"the key":       {list(2, other, raw), signature.ErrRevoked},
		"its digest":    {list(5, other, sum), signature.ErrRevoked},
		"others":        {list(2, other), nil},
		"other digests": {list(3, other[:20]), nil},
	} {
		trust, err := signature.ParseTrust([]byte(k.Signer("ops")), c.list)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := trust.Accept(by, ended); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", name, err, c.want)
		}
	}
	whole := list(2, raw)
	for n := range whole {
		if n == len(whole)-len(raw)-4-5 || n == len(whole)-len(raw)-4-5-5-13 { // between two parts
			continue
		}
		if trust, err := signature.ParseTrust([]byte(k.Signer("ops")), whole[:n]); err == nil && n > 7 {
			if _, err := trust.Accept(by, ended); err == nil {
				t.Errorf("a list that is cut off after %d of %d bytes revokes nothing, without a word", n, len(whole))
			}
		}
	}
	if _, err := signature.ParseTrust([]byte(k.Signer("ops")), list(4, other)); err == nil {
		t.Error("a part that is not known is passed over")
	}
}

// FuzzTrust checks that no list of signers or of revoked keys crashes the parser.
func FuzzTrust(f *testing.F) {
	f.Add([]byte("a ssh-ed25519 AAAA\n"), []byte("SSHKRL\n\x00\x00\x00\x00\x01"))
	f.Add([]byte("\"a b\" namespaces=\"rath\",valid-before=\"2026\" x"), []byte("\x00"))
	f.Fuzz(func(_ *testing.T, signers, revoked []byte) {
		_, _ = signature.ParseTrust(signers, revoked)
		_, _ = signature.Check(string(signers), string(revoked))
	})
}

package dossier_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/evidence/signature"
	"github.com/rathcluster/rath/internal/testkit/must"
)

func newKey(t testing.TB) *signature.Key {
	t.Helper()
	k := must.Get(signature.Open(filepath.Join(t.TempDir(), signature.StoreFile)))(t)
	return k
}

// trust accepts the keys, except revoked ones.
func trust(t testing.TB, keys []*signature.Key, revoked ...*signature.Key) *signature.Trust {
	t.Helper()
	var signers, gone strings.Builder
	for _, k := range keys {
		signers.WriteString(k.Signer("ops"))
	}
	for _, k := range revoked {
		_, line, _ := strings.Cut(k.Signer("x"), `"rath" `)
		gone.WriteString(line)
	}
	tr := must.Get(signature.ParseTrust([]byte(signers.String()), []byte(gone.String())))(t)
	return tr
}

func signed(t testing.TB, e *dossier.Evidence, k *signature.Key) *dossier.Evidence {
	t.Helper()
	e = clone(e)
	must.Do(t, e.Sign(k.Sign))
	return e
}

// TestSigned checks that a signature of a trusted key anchors the run, in every form.
func TestSigned(t *testing.T) {
	ours, other := newKey(t), newKey(t)
	e := signed(t, sample(t), ours)
	for form, doc := range render(t, e) {
		r, err := dossier.Verify(doc, nil)
		if err != nil {
			t.Fatalf("%s: %v", form, err)
		}
		if text := r.String(); r.Anchored != 0 || !strings.HasPrefix(text, "consistent, not anchored") || !strings.Contains(text, ours.Fingerprint()) {
			t.Errorf("%s: without a list of signers:\n%s", form, text)
		}
		r, err = dossier.Verify(doc, &dossier.VerifyOptions{Trust: trust(t, []*signature.Key{other, ours}, other)})
		if err != nil {
			t.Fatalf("%s: %v", form, err)
		}
		if text := r.String(); r.Anchored != 1 || !strings.HasPrefix(text, "verified") || !strings.Contains(text, "by ops, "+ours.Fingerprint()) {
			t.Errorf("%s: with one:\n%s", form, text)
		}
		// The end refers to every commit except the closings of branches.
		if home := r.Sessions[0]; home.Signed != home.Commits {
			t.Errorf("%s: the signature stands for %d of %d commits of the home session", form, home.Signed, home.Commits)
		}
		for _, c := range r.Sessions[1:] {
			if c.Signed < c.Commits-1 {
				t.Errorf("%s: the signature stands for %d of %d commits of %s", form, c.Signed, c.Commits, c.Session)
			}
		}
		for name, tr := range map[string]*signature.Trust{
			"the key is unknown": trust(t, []*signature.Key{other}),
			"the key is revoked": trust(t, []*signature.Key{ours}, ours),
		} {
			_, err := dossier.Verify(doc, &dossier.VerifyOptions{Trust: tr})
			if f := failure(t, err); f.Kind != dossier.Unsigned || !strings.Contains(f.Detail, ours.Fingerprint()) {
				t.Errorf("%s: %s: %v", form, name, err)
			}
		}
	}
	// Two keys signed, and one was revoked later: the other one still counts.
	for form, doc := range render(t, signed(t, e, other)) {
		r, err := dossier.Verify(doc, &dossier.VerifyOptions{Trust: trust(t, []*signature.Key{ours, other}, ours)})
		if err != nil || r.Anchored != 1 || !strings.Contains(r.String(), "not counted") {
			t.Errorf("%s: %v (%v)", form, r, err)
		}
	}
}

// TestForged turns a failed test into a passed one and recomputes all hashes. The signature
// reveals the forgery, in every form.
func TestForged(t *testing.T) {
	ours, forger := newKey(t), newKey(t)
	e := signed(t, sample(t), ours)
	forged := clone(e)
	known := hashes(forged)
	red := slices.IndexFunc(forged.Logs[1].Commits, func(raw string) bool { return strings.Contains(raw, "not ok 2") })
	replace(forged.Logs[1].Commits, red, "not ok 2", "ok 2")
	rehash(forged, known)
	list := &dossier.VerifyOptions{Trust: trust(t, []*signature.Key{ours})}

	without := clone(forged)
	without.Signatures = nil
	for form, doc := range render(t, without) {
		if r, err := dossier.Verify(doc, nil); err != nil || r.Anchored != 0 {
			t.Errorf("%s: the forged run does not hold together: %v", form, err)
		}
		_, err := dossier.Verify(doc, list)
		if f := failure(t, err); f.Kind != dossier.Unsigned {
			t.Errorf("%s: without the signature: %v", form, err)
		}
		if form == dossier.FormHTML {
			continue
		}
		// The old signature is put into the forged document.
		head, rest, _ := strings.Cut(string(doc), ",\n\"logs\":[")
		line, _ := e.Encode()
		_, with, _ := strings.Cut(string(line), `,"signatures":`)
		with, _, _ = strings.Cut(with, ",\n\"logs\":[")
		_, err = dossier.Verify([]byte(head+`,"signatures":`+with+",\n\"logs\":["+rest), nil)
		if f := failure(t, err); f.Kind != dossier.Forged || !strings.Contains(f.Detail, "chain") {
			t.Errorf("%s: with the signature of the true run: %v", form, err)
		}
	}
	for form, doc := range render(t, signed(t, without, forger)) {
		_, err := dossier.Verify(doc, list)
		if f := failure(t, err); f.Kind != dossier.Unsigned || !strings.Contains(f.Detail, forger.Fingerprint()) {
			t.Errorf("%s: signed by the forger: %v", form, err)
		}
	}
}

// TestBadSignatures checks that a document with an invalid signature does not verify.
func TestBadSignatures(t *testing.T) {
	ours := newKey(t)
	plain := sample(t)
	e := signed(t, plain, ours)
	resigned := func(statement string) []dossier.Signature {
		s := must.Get(ours.Sign(statement))(t)
		return []dossier.Signature{{Statement: statement, Signature: s}}
	}
	good := e.Signatures[0]
	for name, signatures := range map[string][]dossier.Signature{
		"truncated":         {{Statement: good.Statement, Signature: good.Signature[:len(good.Signature)/2]}},
		"of another run":    resigned(strings.Replace(good.Statement, "run "+string(fixRun)+"\n", "run other\n", 1)),
		"of another tenant": resigned(strings.Replace(good.Statement, "tenant acme\n", "tenant other\n", 1)),
		"of another state":  resigned(strings.Replace(good.Statement, "state succeeded\n", "state failed\n", 1)),
		"with another line": resigned(good.Statement + "more\n"),
		"of nothing":        resigned(""),
		"one holds":         append([]dossier.Signature{good}, resigned("")...),
		"very many":         slices.Repeat([]dossier.Signature{good}, 9),
	} {
		bad := clone(plain)
		bad.Signatures = signatures
		doc, err := bad.Encode()
		must.Do(t, err)
		_, err = dossier.Verify(doc, nil)
		if f := failure(t, err); f.Kind != dossier.Forged {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := dossier.HTML(bad); err == nil {
			t.Errorf("%s: it is rendered", name)
		}
	}
	// The chain is cut before the end that was signed.
	cut := clone(e)
	home := &cut.Logs[0]
	for i, raw := range home.Commits {
		if strings.Contains(raw, `"`+journal.KindEnded+`"`) {
			home.Commits = home.Commits[:i]
			break
		}
	}
	doc, err := cut.Encode()
	must.Do(t, err)
	_, err = dossier.Verify(doc, nil)
	if f := failure(t, err); f.Kind != dossier.Forged && f.Kind != dossier.Foreign {
		t.Errorf("a chain that is cut before its end: %v", err)
	}
	cut.Signatures = nil
	if err := cut.Sign(ours.Sign); failure(t, err).Kind != dossier.Unsigned {
		t.Errorf("a run without an end is signed: %v", err)
	}
}

// TestSignatures checks that a document contains its statements and signatures unchanged,
// for ssh-keygen to check.
func TestSignatures(t *testing.T) {
	e := signed(t, sample(t), newKey(t))
	for form, doc := range render(t, e) {
		if all, err := dossier.Signatures(doc); err != nil || !slices.Equal(all, e.Signatures) {
			t.Errorf("%s carries %v (%v), want %v", form, all, err, e.Signatures)
		}
	}
}

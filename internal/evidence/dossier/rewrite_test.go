package dossier_test

import (
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/session"
)

// rehash updates all hashes in evidence after changes of commits, in the chains and in the
// references between them, like a forger who rewrites everything. known are the hashes
// that the texts still contain.
func rehash(e *dossier.Evidence, known [][]session.Hash) {
	for changed := true; changed; {
		changed = false
		for i := range e.Logs {
			for n, raw := range e.Logs[i].Commits {
				now := commitlog.HashOf([]byte(raw))
				if now == known[i][n] {
					continue
				}
				old, fresh := known[i][n].String(), now.String()
				known[i][n], changed = now, true
				for j := range e.Logs {
					for m := range e.Logs[j].Commits {
						e.Logs[j].Commits[m] = strings.ReplaceAll(e.Logs[j].Commits[m], old, fresh)
					}
				}
			}
		}
	}
}

func hashes(e *dossier.Evidence) [][]session.Hash {
	out := make([][]session.Hash, len(e.Logs))
	for i, l := range e.Logs {
		for _, raw := range l.Commits {
			out[i] = append(out[i], commitlog.HashOf([]byte(raw)))
		}
	}
	return out
}

// TestRewritten shows the limit of hashes: a document that was rewritten as a whole
// verifies, and only the head from another source reveals it.
func TestRewritten(t *testing.T) {
	e := sample(t)
	head := commitlog.HashOf([]byte(e.Logs[0].Commits[len(e.Logs[0].Commits)-1]))
	known := hashes(e)
	replace(e.Logs[1].Commits, 1, "A quick fix", "A great fix")
	rehash(e, known)
	for form, doc := range render(t, e) {
		if _, err := dossier.Verify(doc, nil); err != nil {
			t.Errorf("%s: %v", form, err)
		}
		_, err := dossier.Verify(doc, &dossier.VerifyOptions{Head: head})
		if f := failure(t, err); f.Kind != dossier.Cut {
			t.Errorf("%s: %v", form, err)
		}
	}
}

var field = regexp.MustCompile(`"[a-z_]+":("(?:[^"\\]|\\.)*"|[0-9]+)`)

// FuzzRewritten changes a field of a commit and all hashes after it, so that the folds and
// the rendering process everything a forger could write. They never panic, and their
// output verifies.
func FuzzRewritten(f *testing.F) {
	e := sample(f)
	f.Add(uint8(0), uint8(3), uint16(2), "text")
	f.Add(uint8(0), uint8(6), uint16(9), "18446744073709551615")
	f.Add(uint8(2), uint8(1), uint16(4), "adopt")
	f.Add(uint8(1), uint8(3), uint16(1), "\x1b]8;;")
	f.Fuzz(func(t *testing.T, log, commit uint8, nth uint16, value string) {
		bad := clone(e)
		known := hashes(bad)
		commits := bad.Logs[int(log)%len(bad.Logs)].Commits
		raw := &commits[int(commit)%len(commits)]
		all := field.FindAllStringSubmatchIndex(*raw, -1)
		at := all[int(nth)%len(all)][2:4]
		text := value
		if (*raw)[at[0]] == '"' {
			quoted, err := canonical.Marshal(value)
			if err != nil {
				return // no commit can hold it
			}
			text = quoted
		} else if n, err := strconv.ParseUint(value, 10, 64); err != nil {
			text = strconv.Itoa(len(value))
		} else {
			text = strconv.FormatUint(n, 10)
		}
		*raw = (*raw)[:at[0]] + text + (*raw)[at[1]:]
		if !json.Valid([]byte(*raw)) {
			t.Fatalf("the change is no JSON: %s", *raw)
		}
		rehash(bad, known)
		for _, form := range []func(*dossier.Evidence) ([]byte, error){dossier.HTML, dossier.Markdown} {
			doc, err := form(bad)
			if err != nil {
				if _, ok := errors.AsType[*dossier.Failure](err); !ok {
					t.Fatalf("error %v, want a Failure", err)
				}
				continue
			}
			if _, err := dossier.Verify(doc, nil); err != nil {
				t.Fatalf("what was rendered does not verify: %v", err)
			}
		}
	})
}

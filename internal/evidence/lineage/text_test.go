package lineage

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/core/excerpt"
)

// TestPlainLines checks that flat does not change a plain text.
func TestPlainLines(t *testing.T) {
	const letters = "ab  \n\tz~\x7f\u00e9\u202e\xff"
	r := rand.New(rand.NewPCG(1, 2))
	as := 0
	for range 20_000 {
		b := make([]byte, r.IntN(14))
		for i := range b {
			b[i] = letters[r.IntN(len(letters))]
			if r.IntN(3) > 0 {
				b[i] = letters[r.IntN(3)]
			}
		}
		s, limit := string(b), 2+r.IntN(12)
		if plain(s) {
			as++
		}
		if got, want := line(s, limit), excerpt.Cut(flat(s, limit), limit); got != want {
			t.Fatalf("%q in %d characters is %q, want %q", s, limit, got, want)
		}
	}
	if as < 1000 {
		t.Errorf("%d texts were plain: the test shows little", as)
	}
}

// TestHintsMissNothing checks that a text without a hint has no match.
func TestHintsMissNothing(t *testing.T) {
	parts := []string{
		"sk-", "pk_", "ghp_", "ghx_", "github_pat_", "glpat-", "xoxb-", "AKIA", "ASIA", "AIza", "eyJ", ".", "SA", "SX", "-----BEGIN ", "RSA ", "PRIVATE KEY",
		"bearer ", "BeaRer ", "Authorization: ", "Basic ", "api_", "KEY", "\u212aey", "k", "apikey", "To\u212aen", "token", "\u017fecret", "Secret", "passwd", "pa\u017f\u017fwd",
		"PASSWORD", "=", ":", ": ", "'", `"`, "://", "user", "@", "x", " ", "0123456789ABCDEF", "abcdefghijklmnop", "A2345672345672345672345672345672345672345672345672345672",
	}
	r := rand.New(rand.NewPCG(1, 2))
	matches := 0
	for range 200_000 {
		var b strings.Builder
		for range 1 + r.IntN(5) {
			b.WriteString(parts[r.IntN(len(parts))])
		}
		s := b.String()
		want := secrets.ReplaceAllString(s, masked)
		if want != s {
			matches++
		}
		if got := Mask(s); got != want {
			t.Fatalf("%q is masked as %q, want %q", s, got, want)
		}
	}
	if matches < 1000 {
		t.Errorf("%d texts had a match: the test shows little", matches)
	}
}

func TestShortenKeepsHowACallEnded(t *testing.T) {
	for in, want := range map[string]string{
		"sh test.sh, exit 1":                                 "sh test.sh, exit 1",
		"sh test.sh --every --one, exit 1":                   "sh test.sh -…, exit 1",
		"sh test.sh, exit 1, asks example.com (3)":           "sh test.sh, exit 1,…",
		"sh test.sh --all, exit 1, is refused a.example":     "sh test.sh -…, exit 1",
		"sh test.sh --every, exit 1, db says \"it goes on\"": "sh test.sh -…, exit 1",
		"writes slug.sh twice: rejected":                     "writes slu…: rejected",
		"writes slug.sh twice: path_refused":                 "writes…: path_refused",
		"run it: tool_execution_exception":                   "tool_execution_excep…",
		"approved by ann from afar: seen":                    "approved by ann from…",
		`says "it went well, exit 0 is all that I saw"`:      `says "it went well,…`,
	} {
		if got := short(in, 21); got != want {
			t.Errorf("%s is cut to %q, want %q", in, got, want)
		}
	}
}

func BenchmarkMask(b *testing.B) {
	for name, s := range map[string]string{"word": "look", "call": `coder calls read_file(path: "internal/evidence/lineage/text.go", right=3)`} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Mask(s)
			}
		})
	}
}

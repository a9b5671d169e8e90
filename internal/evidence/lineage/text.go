package lineage

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/session"
)

// line returns at most limit characters of s on one line, without characters that could
// control a terminal. One that reorders the text around it is named in its place.
func line(s string, limit int) string {
	if !plain(s) {
		s = flat(s, limit)
	}
	return excerpt.Cut(s, limit)
}

// flat returns the first characters of s on one line, slightly more than limit.
func flat(s string, limit int) string {
	var b strings.Builder
	n, space := 0, false
	for _, r := range s {
		text := string(r)
		switch {
		case r == utf8.RuneError, unicode.IsSpace(r):
			space = n > 0
			continue
		case unicode.Is(unicode.Bidi_Control, r):
			text = fmt.Sprintf("⟦%U⟧", r)
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs):
			continue
		}
		if space {
			b.WriteByte(' ')
			n++
			space = false
		}
		b.WriteString(text)
		n += utf8.RuneCountInString(text)
		if n > limit+1 {
			break
		}
	}
	return b.String()
}

// plain reports whether s is printable ASCII with single spaces between words, as nearly
// every text is, so that it is a line unchanged.
func plain(s string) bool {
	space := true // before the first word
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || s[i] == ' ' && space {
			return false
		}
		space = s[i] == ' '
	}
	return s == "" || !space
}

// outcome matches the outcome of a call after its action: ", exit 1" or ": rejected". Other
// observations of a command may follow. Failure kinds of one word are listed, because a
// user's word may also follow a colon.
var outcome = regexp.MustCompile(`(?:, exit -?[0-9]+|: (?:rejected|cancelled|timeout|mismatch|unreachable|[a-z]+(?:_[a-z]+)+))((?:, (?:asks |is refused |[0-9]+ requests more|[^ ]+ says ").*)?)$`)

// Shorten cuts the summary of a record, or a text that ends with one, to a width. It keeps
// the outcome of a call, so that failed calls do not look successful. measure returns the
// width of a text, and cut cuts a text to a width.
func Shorten(s string, width int, measure func(string) int, cut func(string, int) string) string {
	if measure(s) <= width {
		return s
	}
	at := outcome.FindStringSubmatchIndex(s)
	if at == nil || measure(s[:at[2]]) < width {
		return cut(s, width)
	}
	did, end := s[:at[0]], s[at[0]:at[2]]
	if room := width - measure(end); room > 1 {
		return cut(did, room) + end
	}
	return cut(strings.TrimLeft(end, ",: "), width)
}

// short is Shorten in characters.
func short(s string, limit int) string {
	return Shorten(s, limit, utf8.RuneCountInString, excerpt.Cut)
}

// secrets matches the forms of credentials in prompts and in the output of tools.
var secrets = regexp.MustCompile(strings.Join([]string{
	`\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}`,
	`\bgh[pousr]_[A-Za-z0-9]{16,}`,
	`\bgithub_pat_[A-Za-z0-9_]{16,}`,
	`\bglpat-[A-Za-z0-9_-]{16,}`,
	`\bxox[abeprs]-[A-Za-z0-9-]{10,}`,
	`\bA[KS]IA[0-9A-Z]{16}\b`,
	`\bAIza[0-9A-Za-z_-]{30,}`,
	`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?`,
	`\bS[ACNOUX][A-Z2-7]{56}\b`,
	`-----BEGIN [A-Z ]*PRIVATE KEY.*`,
	`(?i:\bbearer\s+|\bauthorization:?\s*basic\s+)[A-Za-z0-9._~+/=-]{12,}`,
	`(?i:[a-z_-]*(?:api[_-]?key|token|secret|passw(?:or)?d|passwd)["']?\s*[=:]\s*["']?)[^\s"']{6,}`,
	`://[^/\s:@]*:[^/\s@]+@`,
}, "|"))

// Every match of secrets, except the seeds of NATS keys, contains one of hints, or in lower
// case one of lowerHints. The search for them is cheap, and most texts have none. The long
// s is listed because it equals an s in a case-insensitive pattern and is already lower
// case.
var (
	hints = []string{
		"sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "AKIA", "ASIA", "AIza",
		"eyJ", "-----BEGIN", "://", "\u017f",
	}
	lowerHints = []string{"bearer", "basic", "key", "token", "secret", "passw"}
)

// shortest is shorter than every match of secrets.
const shortest = 6

const masked = "[masked]"

// Mask replaces texts that look like credentials, as records do in quotes of prompts,
// arguments and output. It detects the usual forms only.
func Mask(s string) string {
	if len(s) < shortest || !hinted(s, hints) && !hinted(strings.ToLower(s), lowerHints) && !seeded(s) {
		return s
	}
	return secrets.ReplaceAllString(s, masked)
}

func hinted(s string, hints []string) bool {
	return slices.ContainsFunc(hints, func(h string) bool { return strings.Contains(s, h) })
}

// seed is the length of the seed of a NATS key, in the alphabet of base32.
const seed = 58

// seeded reports whether s has seed consecutive characters of the alphabet of base32.
func seeded(s string) bool {
	n := 0
	for i := 0; i < len(s) && n < seed && len(s)-i+n >= seed; i++ {
		if c := s[i]; c >= 'A' && c <= 'Z' || c >= '2' && c <= '7' {
			n++
		} else {
			n = 0
		}
	}
	return n >= seed
}

// maskedLine makes the text of a record from any text. It masks a longer part before it
// cuts, so that no part of a credential is left.
func maskedLine(s string, limit int) string {
	return line(Mask(line(s, 4*limit)), limit)
}

// quote returns s between quotation marks, at most limit characters in all.
func quote(s string, limit int) string {
	return `"` + excerpt.Cut(strings.ReplaceAll(maskedLine(s, limit), `"`, `'`), limit-2) + `"`
}

// Short returns the id of a session for display: an id chosen by a user in full, a
// generated one cut to the first eight characters.
func Short(id session.ID) string {
	if _, _, minted := id.Locate(); !minted || len(id) <= 14 {
		return string(id)
	}
	return string(id[:8])
}

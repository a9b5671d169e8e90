package llm

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// CleanText returns s with every invalid UTF-8 sequence replaced by U+FFFD.
// Clients apply it to every text of a server, so that no caller hashes bytes
// that encoding/json would silently change.
func CleanText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Clip returns at most n bytes of s, cut between characters, with an ellipsis (not
// counted) at a cut.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	n = max(n, 0)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// Redacted replaces a secret.
const Redacted = "[redacted]"

// secrets are the forms of keys in servers' texts. The first group of each is kept.
var secrets = []*regexp.Regexp{
	regexp.MustCompile(`(?i)\b(bearer\s+)[^\s"',;<>]{6,}`),
	regexp.MustCompile(`(?i)\b((?:x-)?api[-_ ]?key["']?\s*(?:provided)?\s*[:=]\s*["']?)[^\s"',;<>&]{6,}`),
	regexp.MustCompile(`(?i)([?&](?:key|api_key|apikey|token|access_token)=)[^\s"'&<>]+`),
	regexp.MustCompile(`(?i)([a-z][a-z0-9+.-]*://)[^\s/@"'<>]+@`),
	regexp.MustCompile(`()\b(?:sk|pk|gsk|xai|rk)[-_][A-Za-z0-9_*.-]{6,}`),
}

// Redact removes from s the given secrets (those of six bytes and more: a shorter one
// would blank ordinary words) and all texts with the form of a key.
func Redact(s string, known ...string) string {
	for _, k := range known {
		if len(k) >= 6 {
			s = strings.ReplaceAll(s, k, Redacted)
		}
	}
	for _, re := range secrets {
		s = re.ReplaceAllString(s, "${1}"+Redacted)
	}
	return s
}

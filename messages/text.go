package messages

import (
	"regexp"
	"strings"

	"github.com/rathcluster/rath/run"
)

// packages matches the names of packages at the start of this module's errors, where
// one wraps another; after llm the code follows. It does not match ordinary words
// before a colon.
var packages = regexp.MustCompile(`(^|: )(?:blob|dossier|flow|journal|lineage|llm(?:: [a-z_]+)?|nats/[a-z]+|natsserver|node|openrath|run|session|workspace): `)

// Text returns the text of err for users: without the names of packages, and without
// the sentinels that only repeat the text before them. Programs branch on its code. It
// is "" for nil.
func Text(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	for _, sentinel := range []error{run.ErrState, run.ErrMalformed} {
		if s := sentinel.Error(); text != s {
			text = strings.ReplaceAll(text, ": "+s, "")
			text = strings.TrimPrefix(text, s+": ")
		}
	}
	for {
		plain := packages.ReplaceAllString(text, "$1")
		if plain == text || plain == "" {
			return text
		}
		text = plain
	}
}

package messages

import (
	"regexp"
	"strings"

	"github.com/rathcluster/rath/run"
)

// packages matches the names of packages that our errors begin with, where one
// wraps another; after llm comes the code. Words that people say after a colon are
// not among them.
var packages = regexp.MustCompile(`(^|: )(?:blob|dossier|flow|journal|lineage|llm(?:: [a-z_]+)?|nats/[a-z]+|natsserver|node|openrath|run|session|workspace): `)

// Text returns what err says to people: without the names of packages, and
// without the sentinels that only repeat what the text before them explains.
// Programs branch on its code. It is "" for nil.
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

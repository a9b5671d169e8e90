package messages_test

import (
	"regexp"
	"slices"
	"testing"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestUnknownVerb is told of every verb that FORMAT.md has.
func TestUnknownVerb(t *testing.T) {
	_, err := messages.Control{}.Signal(session.Key{Tenant: "acme", ID: "s1"}, "ana", run.ID("r1"), "fly")
	if err == nil {
		t.Fatal("there is a verb fly")
	}
	told := regexp.MustCompile(`[a-z]+`).FindAllString(err.Error(), -1)
	documented := regexp.MustCompile("(?m)^\\| `([a-z]+)` \\|").FindAllStringSubmatch(section(t, "## Control"), -1)
	if len(documented) < 10 {
		t.Fatalf("FORMAT.md has %d verbs", len(documented))
	}
	for _, m := range documented {
		if !slices.Contains(told, m[1]) {
			t.Errorf("%v: does not name %s", err, m[1])
		}
	}
}

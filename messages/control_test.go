package messages_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestUnknownVerb: the error lists every verb of FORMAT.md.
func TestUnknownVerb(t *testing.T) {
	_, err := translate.Signal(messages.Control{}, session.Key{Tenant: "acme", ID: "s1"}, "ana", run.ID("r1"), "fly")
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

// TestNoteWithoutText: a request that lost its text does not empty a note.
func TestNoteWithoutText(t *testing.T) {
	for _, text := range []string{"", " \n"} {
		_, _, err := messages.Control{URI: "memory://user/a", Text: text}.Note(messages.VerbMemoryWrite)
		if !errors.Is(err, run.ErrMalformed) || !strings.Contains(err.Error(), "field text: it is missing") {
			t.Errorf("text %q: %v", text, err)
		}
	}
	if uri, _, err := (messages.Control{URI: "memory://user/a"}).Note(messages.VerbMemoryForget); uri == "" || err != nil {
		t.Errorf("forget: %q, %v", uri, err)
	}
}

// TestLargeControl: no part of a control request can go into a workspace.
func TestLargeControl(t *testing.T) {
	_, err := messages.DecodeControl(make([]byte, messages.MaxMessage+1))
	if !errors.Is(err, session.ErrTooLarge) || !strings.Contains(err.Error(), "shorten it, or split it") {
		t.Error(err)
	}
}

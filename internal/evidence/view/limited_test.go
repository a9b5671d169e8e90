package view

import (
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/messages"
)

// TestLimited checks that a call that waits for a limit names the limit's owner.
func TestLimited(t *testing.T) {
	s := messages.LiveStep{Name: "coder", Model: "m", Doing: "waits", Began: 1, At: 1}
	for _, text := range []string{Doing(&s, time.UnixMilli(2)), LiveNote(&messages.Live{At: 2, Steps: []messages.LiveStep{s}})} {
		if !strings.Contains(text, "a limit of model m or its key") {
			t.Error(text)
		}
	}
}

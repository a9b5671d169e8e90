package view

import (
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/wire"
)

// TestLimited: a call that waits for a limit names whose.
func TestLimited(t *testing.T) {
	s := wire.LiveStep{Name: "coder", Model: "m", Doing: "waits", Began: 1, At: 1}
	for _, text := range []string{doingText(&s, time.UnixMilli(2)), LiveNote(&wire.Live{At: 2, Steps: []wire.LiveStep{s}})} {
		if !strings.Contains(text, "a limit of model m or its key") {
			t.Error(text)
		}
	}
}

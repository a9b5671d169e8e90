package transcript

import (
	"testing"

	"github.com/rathcluster/rath/llm"
)

// TestCacheKey: requests with a common beginning share a key, even if they differ after
// the user's first message, and no others do.
func TestCacheKey(t *testing.T) {
	tools := []llm.ToolSpec{{Name: "f"}}
	system, user := llm.Message{Role: llm.System, Text: "You are."}, llm.Message{Role: llm.User, Text: "hi"}
	key := func(tools []llm.ToolSpec, msgs ...llm.Message) string {
		return (&Call{Tools: tools}).CacheKey("acme", msgs)
	}
	want := key(tools, system, user)
	later := key(tools, system, user, llm.Message{Role: llm.Assistant, Text: "Hello."}, llm.Message{Role: llm.User, Text: "more"})
	if want == "" || later != want {
		t.Errorf("%q, and %q as it goes on", want, later)
	}
	for name, other := range map[string]string{
		"tools": key(nil, system, user), "instructions": key(tools, user), "first words": key(tools, system, llm.Message{Role: llm.User, Text: "ho"}),
		"tenant": (&Call{Tools: tools}).CacheKey("other", []llm.Message{system, user}), "no words yet": key(tools, system),
	} {
		if other == want || other == "" {
			t.Errorf("another %s: %q", name, other)
		}
	}
}

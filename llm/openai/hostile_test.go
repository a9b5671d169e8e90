package openai

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/llm"
)

// TestCostlyAnswers: a task may name any server, and no deadline reaches what is
// computed about its answer. So it costs no more than it is long.
func TestCostlyAnswers(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 4<<20)
	nested := func(n int, open, end string) []byte {
		return []byte(strings.Repeat(open, n) + `"` + long + `"` + strings.Repeat(end, n))
	}
	read := func(t *testing.T, stream string) {
		if _, err := io.Copy(io.Discard, newEvents(strings.NewReader(stream), io.NopCloser(nil), DefaultMaxFrame)); err != io.ErrUnexpectedEOF {
			t.Errorf("the stream ends with %v", err)
		}
	}
	for name, look := range map[string]func(t *testing.T){
		"an event of many lines": func(t *testing.T) {
			read(t, "data: [1\n"+strings.Repeat("data: ,1\n", 1_000_000))
		},
		"many lines that are no event": func(t *testing.T) {
			read(t, `data: ["`+long+"\"] x\n"+strings.Repeat("data: x\n", 500_000))
		},
		"an error within errors": func(t *testing.T) {
			if c, ok := complain(nested(4900, `{"error":[`, `]}`)); ok {
				t.Errorf("it says %.100q", c.message)
			}
		},
		"a long error": func(t *testing.T) {
			c, ok := complain([]byte(`{"error":"` + strings.Repeat("model ", 1<<20) + `"}`))
			if code := c.class(0); !ok || code != llm.CodeUnavailable {
				t.Errorf("%v, %v", code, ok)
			}
		},
		"a text within texts": func(t *testing.T) {
			var j joiner
			if text := j.add(nested(4900, `[{"text":`, `}]`)); text != "" {
				t.Errorf("it says %.100q", text)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			done := make(chan struct{})
			go func() {
				defer close(done)
				look(t)
			}()
			select {
			case <-done:
			case <-time.After(30 * time.Second): // it takes a part of a second; else minutes
				t.Error("it takes too long")
			}
		})
	}
}

// TestSizeOfExtras: what a server attaches to its tool calls counts as part of the
// answer.
func TestSizeOfExtras(t *testing.T) {
	a := &assembler{max: 1 << 20, malformed: func(what string) *llm.Error { return llm.Rebuild(llm.CodeMalformed, what) }}
	piece := func(i int) []byte {
		data, err := json.Marshal(map[string]any{"choices": []any{map[string]any{"delta": map[string]any{"tool_calls": []any{map[string]any{
			"index": i, "id": string(rune('a' + i)), "function": map[string]string{"name": "f"}, "extra_content": strings.Repeat("x", 400<<10),
		}}}}}})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	var err error
	for i := range 5 {
		if err = a.add(piece(i / 2)); err != nil { // the second piece takes the place of the first
			break
		}
	}
	if llm.CodeOf(err) != llm.CodeMalformed || len(a.slots) != 3 {
		t.Errorf("%v at call %d", err, len(a.slots))
	}
}

package exchange

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/llm"
)

// TestCostlyAnswers: a task may name any server, and no deadline bounds the computation
// on its answer. Its cost must therefore be proportional to its length.
func TestCostlyAnswers(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 4<<20)
	nested := func(n int, open, end string) []byte {
		return []byte(strings.Repeat(open, n) + `"` + long + `"` + strings.Repeat(end, n))
	}
	read := func(t *testing.T, stream string) {
		if _, err := read(strings.NewReader(stream), DefaultMaxFrame); err != io.ErrUnexpectedEOF {
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
			if code := c.class(0, nil); !ok || code != llm.CodeUnavailable {
				t.Errorf("%v, %v", code, ok)
			}
		},
		"a text within texts": func(t *testing.T) {
			var j Joiner
			if text := j.Add(nested(4900, `[{"text":`, `}]`)); text != "" {
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
			case <-time.After(30 * time.Second): // it takes a fraction of a second; without the bound, minutes
				t.Error("it takes too long")
			}
		})
	}
}

package scripted

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// Entry is one line of the witness log: a request, and the script's answer to it. It is
// written before the first byte of the answer, so that the log has the request even if
// the answer is lost.
type Entry struct {
	Time time.Time `json:"time"`
	// Via is "http" or "process".
	Via string `json:"via"`
	// Step is the request's step key, Try the count of the client's retries.
	Step     string `json:"step,omitempty"`
	Try      int    `json:"try,omitempty"`
	Model    string `json:"model,omitempty"`
	Messages int    `json:"messages"`
	// Digest is [Digest] of the messages.
	Digest string `json:"digest"`
	// Rule is the rule that answers; "" if none does.
	Rule string `json:"rule,omitempty"`
	// Status is the HTTP status of the answer, even in process; 0 if the fault prevents
	// one.
	Status int    `json:"status"`
	Fault  string `json:"fault,omitempty"`
	Stream bool   `json:"stream,omitempty"`
}

// witness writes entries, one JSON line each.
type witness struct {
	mu sync.Mutex
	w  io.Writer
}

// note writes e and flushes it if the writer can. One Write call per line keeps lines
// intact, even in a file that several processes append to.
func (w *witness) note(e *Entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("witness log: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.w.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("witness log: %w", err)
	}
	if f, ok := w.w.(interface{ Flush() error }); ok {
		if err := f.Flush(); err != nil {
			return fmt.Errorf("witness log: %w", err)
		}
	}
	return nil
}

// Package supervise is the interface of a node to other processes of its machine. An
// [Attachment] in its store shows the tools of the same user how to reach it.
//
// `rath dev` starts the programs of its nodes and reads their output. A node writes one
// line to its standard output when it is up, or with the reason it did not start; the rest
// of the output is the program's. A word on its standard input requests a drain. The input
// ends when the process that started the node ends, and that process' server with it.
package supervise

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// Env is "true" in the environment of a supervised program.
const Env = "RATH_SUPERVISED"

// OrphanStop bounds how long a node continues once the process that started it has ended
// without a word, and its server with it: the node cannot return its runs.
const OrphanStop = 3 * time.Second

// Up is a node's one report: Incarnation when it is up, else Error.
type Up struct {
	Incarnation string `json:"rath_node,omitempty"`
	Error       string `json:"rath_node_error,omitempty"`
}

// Line parses a line of a node's standard output; ok is false for a line of the program.
func Line(line []byte) (up Up, ok bool) {
	if json.Unmarshal(line, &up) != nil {
		return Up{}, false
	}
	return up, up.Incarnation != "" || up.Error != ""
}

// Say writes the report. The process that started this one may have ended.
func Say(w io.Writer, up Up) {
	if data, err := json.Marshal(up); err == nil {
		_, _ = fmt.Fprintf(w, "%s\n", data)
	}
}

// drain is the word on standard input that requests a drain.
const drain = "drain"

// Drain requests a node to drain.
func Drain(stdin io.WriteCloser) {
	_, _ = io.WriteString(stdin, drain+"\n") // it may have ended
	_ = stdin.Close()
}

// Ended returns a channel that is closed when standard input has ended; orphaned, to be
// read after that, is whether it ended without the word to drain. The goroutine that reads
// it ends with the process, because a read cannot be cut off.
func Ended(stdin io.Reader) (ended <-chan struct{}, orphaned *bool) {
	done := make(chan struct{})
	orphaned = new(bool)
	go func() {
		rest, _ := io.ReadAll(io.LimitReader(stdin, 1<<10))
		_, _ = io.Copy(io.Discard, stdin)
		*orphaned = strings.TrimSpace(string(rest)) != drain
		close(done)
	}()
	return done, orphaned
}

// Package supervise is what a node says to other processes of its machine. What it leaves
// in its store tells the tools of the same user how to reach it: [Attachment].
//
// `rath dev` starts the programs of its nodes and listens to them. A node says on its
// standard output, in a line of its own, that it is up, or why it did not start;
// everything else there is the program's. Its standard input tells it to drain, and ends
// when the process that started it ends, and that process' server with it.
package supervise

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// Env is "true" in the environment of a program that is run so.
const Env = "RATH_SUPERVISED"

// OrphanStop bounds how long a node goes on once the process that started it has
// ended without a word, and its server with it: nothing can be given back.
const OrphanStop = 3 * time.Second

// Up is what a node says once: Incarnation when it is up, else Error.
type Up struct {
	Incarnation string `json:"rath_node,omitempty"`
	Error       string `json:"rath_node_error,omitempty"`
}

// Line reads a line of a node's standard output; ok is false for one that the
// program wrote.
func Line(line []byte) (up Up, ok bool) {
	if json.Unmarshal(line, &up) != nil {
		return Up{}, false
	}
	return up, up.Incarnation != "" || up.Error != ""
}

// Say says it. The process that started this one may have ended.
func Say(w io.Writer, up Up) {
	if data, err := json.Marshal(up); err == nil {
		_, _ = fmt.Fprintf(w, "%s\n", data)
	}
}

// drain is the word before standard input ends that asks for a drain.
const drain = "drain"

// Drain tells a node to drain.
func Drain(stdin io.WriteCloser) {
	_, _ = io.WriteString(stdin, drain+"\n") // it may have ended
	_ = stdin.Close()
}

// Ended is closed when standard input has ended; orphaned, to be read after that, is
// whether it ended without the word to drain. What waits for it ends with the process,
// because a read cannot be cut off.
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

package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rathcluster/rath/internal/nats/supervise"
	"github.com/rathcluster/rath/internal/sandbox/overlay"
)

// Member is a node of a fleet, from the view of the process that started it.
type Member struct {
	Name        string
	Incarnation string // "" until it is up
	PID         int
	Log         string // file

	from  int64 // beginning of this start in the log
	to    int64 // its end; 0 until the process has ended
	up    time.Time
	cmd   *exec.Cmd
	stdin io.WriteCloser
	said  chan supervise.Up
	done  chan struct{} // closed when the process has ended
	Err   error         // how it ended; valid after done
}

// memberStart bounds how long a node takes to start.
const memberStart = time.Minute

// follow reads the node's messages until its process ends. Other output of the program
// goes to the log.
func (m *Member) follow(out io.Reader, log *os.File) {
	defer close(m.done)
	defer log.Close()
	r := bufio.NewReaderSize(out, 64<<10)
	for told := false; ; {
		line, err := r.ReadSlice('\n')
		up, ok := supervise.Line(line)
		switch {
		case ok && !told:
			told = true
			m.said <- up
		case len(line) > 0:
			_, _ = log.Write(line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			break
		}
	}
	m.Err = m.cmd.Wait()
	if at, err := log.Stat(); err == nil {
		m.to = at.Size() // the next start continues in the same file
	}
	// A killed node leaves its mounts, and may never be started again.
	if err := overlay.Clear(filepath.Dir(m.Log)); err != nil {
		fmt.Fprintln(log, err)
	}
}

// wait returns when the node is up.
func (m *Member) wait(ctx context.Context) error {
	limit := time.NewTimer(memberStart)
	defer limit.Stop()
	var up supervise.Up
	select {
	case up = <-m.said:
	case <-m.done:
		select {
		case up = <-m.said:
		default:
			return fmt.Errorf("node %s did not start: %s", m.Name, m.last())
		}
	case <-limit.C:
		return fmt.Errorf("node %s is not up after %s: %w; a node program calls node.Main; its log is %s", m.Name, memberStart, context.DeadlineExceeded, m.Log)
	case <-ctx.Done():
		return ctx.Err()
	}
	if up.Error != "" {
		<-m.done
		return fmt.Errorf("node %s did not start: %s; its log is %s", m.Name, up.Error, m.Log)
	}
	m.Incarnation, m.up = up.Incarnation, time.Now()
	return nil
}

func (m *Member) ended() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// signaled reports whether a signal ended the process, such as kill -9.
func (m *Member) signaled() bool {
	e, ok := errors.AsType[*exec.ExitError](m.Err)
	if !ok {
		return false
	}
	s, ok := e.Sys().(syscall.WaitStatus)
	return ok && s.Signaled()
}

// Ended returns how a node's process ended.
func (m *Member) Ended() string {
	if m.Err == nil {
		return "drained"
	}
	if e, ok := errors.AsType[*exec.ExitError](m.Err); ok {
		if s, ok := e.Sys().(syscall.WaitStatus); ok && s.Signaled() {
			return "died: " + s.Signal().String()
		}
	}
	return "died: " + m.Err.Error()
}

// last returns how the process ended, with its last lines.
func (m *Member) last() string {
	text := strings.TrimPrefix(m.Ended(), "died: ")
	if text == "drained" {
		text = "the program ended by itself; a node program calls node.Main"
	}
	if lines := m.Lines(); len(lines) > 0 {
		text += ": " + strings.Join(lines, "\n  ")
	}
	return text + "\n  its log is " + m.Log
}

const (
	// lastBytes is the part of a log that is read, lastLines the number of lines
	// reported.
	lastBytes = 16 << 10
	lastLines = 5
)

// Lines returns the last lines that the node wrote: from the beginning of a Go panic,
// else the very last.
func (m *Member) Lines() []string {
	lines := m.tail()
	for i, line := range lines {
		lines[i] = plain(line)
	}
	for i, line := range lines {
		if panicked(line) {
			return lines[i:min(i+lastLines, len(lines))]
		}
	}
	return lines[max(0, len(lines)-lastLines):]
}

// tail returns the lines at the end of the log that were written since the start.
func (m *Member) tail() (lines []string) {
	log, err := os.Open(m.Log)
	if err != nil {
		return nil
	}
	defer log.Close()
	end, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil
	}
	if m.done != nil && m.ended() && m.to > 0 {
		end = m.to
	}
	data, _ := io.ReadAll(io.NewSectionReader(log, max(m.from, end-lastBytes), lastBytes))
	data = data[:min(int64(len(data)), end-max(m.from, end-lastBytes))]
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// words returns the line that explains best why the process ended: the line of its
// panic, or the last one that the program wrote itself within a second of the last log
// line; else the last line.
func (m *Member) words() string {
	lines := m.tail()
	if len(lines) == 0 {
		return ""
	}
	if i := slices.IndexFunc(lines, panicked); i >= 0 {
		return lines[i]
	}
	var last time.Time
	for _, line := range slices.Backward(lines) {
		at, logged := timeOf(line)
		switch {
		case !logged:
			return line
		case last.IsZero():
			last = at
		case last.Sub(at) > time.Second:
			return plain(lines[len(lines)-1])
		}
	}
	return plain(lines[len(lines)-1])
}

// timeOf returns the time of a line of a node's log; any other line is the program's own.
func timeOf(line string) (at time.Time, logged bool) {
	var of struct {
		Time  time.Time `json:"time"`
		Level string    `json:"level"`
	}
	err := json.Unmarshal([]byte(line), &of)
	return of.Time, err == nil && of.Level != "" && !of.Time.IsZero()
}

// panicked reports whether a line begins the report of a panic.
func panicked(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
}

// plain returns a line of a node's log without its time, which would take up the room
// of the message; another line stays as it is.
func plain(line string) string {
	dec := json.NewDecoder(strings.NewReader(line))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return line
	}
	var text []string
	for _, head := range []string{slog.TimeKey, slog.LevelKey, slog.MessageKey} {
		key, err := dec.Token()
		value, wrong := dec.Token()
		said, ok := value.(string)
		if err != nil || wrong != nil || key != head || !ok {
			return line
		}
		if head != slog.TimeKey {
			text = append(text, said)
		}
	}
	for dec.More() {
		key, err := dec.Token()
		var value json.RawMessage
		if err != nil || dec.Decode(&value) != nil {
			return line
		}
		text = append(text, fmt.Sprintf("%v=%s", key, value))
	}
	return strings.Join(text, " ")
}

// given returns the error of a fleet whose node does not stay up.
func (m *Member) given() error {
	return fmt.Errorf("node %s did not stay up in %d tries: %s; fix the error in its log %s, and start again", m.Name, Tries, m.Ended(), m.Log)
}

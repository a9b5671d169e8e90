package work

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
)

const (
	// submitBatch is the number of lines that one request looks up, and submitAtOnce
	// the number of tasks that may be in flight without an acknowledgement.
	submitBatch  = wire.MaxTasks
	submitAtOnce = 64
	// busyFor bounds how long a task waits for room in the stream of tasks, if nodes
	// take tasks, and busyPause is the time between two tries.
	busyFor   = 30 * time.Second
	busyPause = 100 * time.Millisecond
	// wrongMost bounds the failed lines that are named.
	wrongMost = 20
)

// submitted is the outcome for one line.
type submitted struct {
	Line  int      `json:"line"`
	Run   run.ID   `json:"run,omitempty"`
	Known bool     `json:"known,omitempty"` // the same task was submitted before
	Code  run.Code `json:"code,omitempty"`
	Error string   `json:"error,omitempty"`

	task  messages.Task
	err   error
	sent  chan struct{} // closed once a sender is done with it
	named bool          // the line gives the id, which may have been used
}

// taskFile are the tasks of a file, one per line.
type taskFile struct {
	a        *app.App
	s        *app.System
	workflow string
	used     map[run.ID]usedID
	failed   []*submitted
	sent     int
	known    int
}

// usedID is the first use of an id in a file.
type usedID struct {
	line int
	body [sha256.Size]byte
}

// ownFlags rejects flags that apply to one task.
func ownFlags(cmd *cobra.Command) error {
	var names []string
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && f.Name != "tasks" {
			names = append(names, "--"+f.Name)
		}
	})
	if len(names) > 0 {
		return fmt.Errorf("%s: with --tasks give these in the lines of the file", strings.Join(names, ", "))
	}
	return nil
}

// submitMany submits the tasks of a file.
func submitMany(ctx context.Context, a *app.App, workflow, file string) (err error) {
	in := a.In
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	s, err := a.Open(ctx, &node.Options{Idle: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Offered(ctx, workflow); app.CodeOf(err) == app.ExitNotFound {
		return err
	}
	f := &taskFile{a: a, s: s, workflow: workflow, used: map[run.ID]usedID{}}
	if err := f.submit(ctx, in); err != nil {
		return err
	}
	return f.tell()
}

// submit reads lines and submits all that have arrived together.
func (f *taskFile) submit(ctx context.Context, in io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	in, release, ends := app.Until(ctx, in)
	lines := make(chan submitted, submitBatch)
	failed := make(chan error, 1)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(lines)
		failed <- readLines(ctx, in, lines)
	})
	defer func() {
		if cancel(); ends { // otherwise a reader that waits for input is left behind: the process ends
			reading.Wait()
		}
		release()
	}()
	for {
		var batch []*submitted
		select {
		case <-ctx.Done():
			return ctx.Err()
		case l, ok := <-lines:
			if !ok {
				return <-failed
			}
			batch = append(batch, &l)
		}
		for more := true; more && len(batch) < submitBatch; {
			select {
			case l, ok := <-lines:
				if more = ok; ok {
					batch = append(batch, &l)
				}
			default:
				more = false
			}
		}
		if err := f.batch(ctx, batch); err != nil {
			return err
		}
	}
}

// readLines sends the lines of a file that are not empty.
func readLines(ctx context.Context, in io.Reader, lines chan<- submitted) error {
	scan := bufio.NewScanner(in)
	scan.Buffer(nil, messages.MaxTask+1)
	n := 0
	for scan.Scan() {
		n++
		text := bytes.TrimSpace(scan.Bytes())
		if len(text) == 0 {
			continue
		}
		l := submitted{Line: n}
		l.task, l.named, l.err = taskOf(text)
		l.Run = l.task.ID
		select {
		case lines <- l:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := scan.Err(); ctx.Err() != nil {
		return ctx.Err()
	} else if errors.Is(err, bufio.ErrTooLong) {
		return app.Fail(app.ExitUsage, "line %d is longer than the %d bytes of a task, and later lines were not read; put large data into a workspace", n+1, messages.MaxTask)
	} else if err != nil {
		return fmt.Errorf("line %d: %w", n+1, err)
	}
	return nil
}

// taskOf parses a task. It generates a missing id.
func taskOf(text []byte) (t messages.Task, named bool, err error) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) == nil && fields != nil && fields["id"] == nil {
		if fields["id"], err = json.Marshal(client.NewID()); err != nil {
			return t, false, err
		}
		if text, err = json.Marshal(fields); err != nil {
			return t, false, err
		}
		t, err = messages.DecodeTask(text)
		return t, false, err
	}
	t, err = messages.DecodeTask(text)
	return t, true, err
}

// batch submits some lines and writes their outcomes, in their order.
func (f *taskFile) batch(ctx context.Context, batch []*submitted) error {
	for _, l := range batch {
		if l.err == nil {
			l.err = f.first(l)
		}
	}
	if err := f.lookUp(ctx, batch); err != nil {
		return err
	}
	stopped := f.sendAll(ctx, batch)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, l := range batch {
		if errors.Is(l.err, errNotSent) {
			continue
		}
		if err := f.write(l); err != nil {
			return err
		}
	}
	if stopped != nil {
		return fmt.Errorf("%s; tasks without a printed id were not stored: %w", f.summary(), stopped)
	}
	return nil
}

// errNotSent marks the lines after a line that found the servers unable to store it.
var errNotSent = errors.New("work: not sent")

// sendAll submits the tasks of a batch, each after those that it names. It stops at an error
// that the next task would meet as well.
func (f *taskFile) sendAll(ctx context.Context, batch []*submitted) error {
	sending, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	work := make(chan *submitted)
	var senders sync.WaitGroup
	for range min(submitAtOnce, len(batch)) {
		senders.Go(func() {
			for l := range work {
				l.err = f.send(ctx, &l.task)
				close(l.sent)
				if errors.Is(l.err, run.ErrBusy) || app.CodeOf(l.err) == app.ExitUnavailable || app.CodeOf(l.err) == app.ExitRefused {
					stop(l.err)
				}
			}
		})
	}
	sent := map[run.ID]chan struct{}{}
	for _, l := range batch {
		if l.err != nil || l.Known {
			continue
		}
		for _, id := range slices.Concat(l.task.After, l.task.AfterAny) {
			if earlier := sent[id]; earlier != nil {
				<-earlier
			}
		}
		switch {
		case sending.Err() != nil:
			l.err = errNotSent
		default:
			l.sent = make(chan struct{})
			sent[l.Run] = l.sent
			work <- l
		}
	}
	close(work)
	senders.Wait()
	return context.Cause(sending)
}

// first rejects an id that an earlier line uses for another task. A line with the same
// task shares the earlier line's outcome.
func (f *taskFile) first(l *submitted) error {
	if !l.named {
		return nil
	}
	body, err := l.task.Encode()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	used, ok := f.used[l.Run]
	switch {
	case !ok:
		f.used[l.Run] = usedID{l.Line, sum}
	case used.body != sum:
		return fmt.Errorf("task %s: %w, in line %d; choose another id, or send the same body", l.Run, run.ErrKeyReused, used.line)
	default:
		l.Known = true
	}
	return nil
}

// lookUp marks the tasks that were submitted before. Credentials that may submit need
// not be able to ask, so only answers count.
func (f *taskFile) lookUp(ctx context.Context, batch []*submitted) error {
	var asked []*submitted
	var tasks []messages.Task
	for _, l := range batch {
		if l.named && l.err == nil && !l.Known {
			asked, tasks = append(asked, l), append(tasks, l.task)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, app.AskTimeout)
	defer cancel()
	known, err := f.s.Known(asking, f.workflow, tasks)
	if err != nil {
		return ctx.Err()
	}
	for i, l := range asked {
		if l.Known = errors.Is(known[i], client.ErrSameTask); !l.Known {
			l.err = known[i]
		}
	}
	return nil
}

// send submits a task, and waits for room if nodes take tasks.
func (f *taskFile) send(ctx context.Context, t *messages.Task) error {
	for until := time.Now().Add(busyFor); ; {
		_, err := f.s.Submit(ctx, f.workflow, *t)
		if !errors.Is(err, run.ErrBusy) || f.s.Own() || time.Now().After(until) {
			return err
		}
		pause := time.NewTimer(busyPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		}
	}
}

// write writes the outcome of a line: the id on standard output, or the error.
func (f *taskFile) write(l *submitted) error {
	switch {
	case l.err != nil:
		l.Code, l.Error = run.CodeOf(l.err), messages.Text(l.err)
		f.failed = append(f.failed, l)
		l.task = messages.Task{}
	case l.Known:
		f.known++
	default:
		f.sent++
	}
	if f.a.AsJSON() { // a stream is one object per line in either form
		return f.a.WriteLine(l)
	}
	if l.err != nil {
		if len(f.failed) <= wrongMost {
			f.a.Err.Println(fmt.Sprintf("line %d: %s", l.Line, l.Error))
		}
		return nil
	}
	f.a.Out.Println(l.Run)
	return f.a.Out.Err()
}

// summary describes the number of tasks submitted so far.
func (f *taskFile) summary() string {
	text := view.Counted(int64(f.sent), "task") + " submitted"
	if f.known > 0 {
		text += fmt.Sprintf(", %d there already", f.known)
	}
	return text
}

// tell prints the summary, and returns the error of lines that were not submitted, with
// their common exit code, or else the code of a partial success.
func (f *taskFile) tell() error {
	if more := len(f.failed) - wrongMost; more > 0 && !f.a.AsJSON() {
		f.a.Remark("and %s up to line %d; --format jsonl names each", view.Counted(int64(more), "more line"), f.failed[len(f.failed)-1].Line)
	}
	f.a.Remark("%s", f.summary())
	if f.s.Own() && f.sent > 0 {
		f.a.Remark("no node runs here: the tasks wait for %q", f.a.Hint("dev"))
	}
	if len(f.failed) == 0 {
		return nil
	}
	code := app.CodeOf(f.failed[0].err)
	if slices.ContainsFunc(f.failed, func(l *submitted) bool { return app.CodeOf(l.err) != code }) {
		code = app.ExitPartial
	}
	return app.Fail(code, "%s not submitted", view.Counted(int64(len(f.failed)), "line"))
}

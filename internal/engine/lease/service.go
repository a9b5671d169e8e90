package lease

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/tool"
)

// services are the processes that run beside the commands of one open sandbox. Each is a
// command without a timeout, under a context that ends with the sandbox. The lease's mu
// guards them.
type services struct {
	box   sandbox.Sandbox
	ctx   context.Context
	stop  context.CancelFunc
	done  sync.WaitGroup
	list  []*service
	ended []serviceEnd // ends that no call has reported yet
}

// service is one start of a service.
type service struct {
	sandbox.Service
	noted bool            // its end was noted
	life  context.Context // ends with the process; nil before the start
	exit  sandbox.Exit    // valid after the end, and so is err
	err   error

	mu  sync.Mutex // guards the fields below
	log *excerpt.Capture
	new *excerpt.Capture // output since the last report of a call; nil is none
}

// Pauses between two readiness checks of a service.
const (
	minReadyPause = 10 * time.Millisecond
	maxReadyPause = 250 * time.Millisecond
)

// maxLogTold bounds the part of a service's log in the report of a call or a failure, in
// bytes.
const maxLogTold = 2 << 10

// maxLogRecorded bounds the output beside a call in the call's record, in bytes.
const maxLogRecorded = 1 << 10

func newServices(ctx context.Context, box sandbox.Sandbox, list []sandbox.Service) *services {
	v := &services{box: box}
	v.ctx, v.stop = context.WithCancel(context.WithoutCancel(ctx))
	for _, s := range list {
		v.list = append(v.list, &service{Service: s})
	}
	return v
}

// up starts the services that do not run, in order, each when the previous one is ready.
func (v *services) up(ctx context.Context) error {
	if v == nil {
		return nil
	}
	v.note()
	for i, s := range v.list {
		if s.life != nil && !s.noted {
			continue
		}
		s = v.begin(s.Service)
		v.list[i] = s
		if err := v.ready(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// begin starts a service.
func (v *services) begin(want sandbox.Service) *service {
	s := &service{Service: want, log: excerpt.NewCapture(sandbox.ServiceLog)}
	var over context.CancelFunc
	s.life, over = context.WithCancel(context.WithoutCancel(v.ctx))
	v.done.Go(func() {
		defer over()
		// The output goes to the log as it comes, so that no copy is kept.
		s.exit, s.err = v.box.Exec(v.ctx, sandbox.Cmd{ID: "service " + s.Name, Argv: s.Command, Timeout: sandbox.NoTimeout, Output: 2, Offload: s})
	})
	return s
}

// Write adds to the log.
func (s *service) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.new == nil {
		s.new = excerpt.NewCapture(maxLogRecorded)
	}
	_, _ = s.new.Write(p) // neither write fails
	return s.log.Write(p)
}

// logs returns the output of the services since the last call of logs.
func (v *services) logs() (list []journal.ServiceLog) {
	if v == nil {
		return nil
	}
	for _, s := range v.list {
		s.mu.Lock()
		kept := s.new
		s.new = nil
		s.mu.Unlock()
		if kept == nil {
			continue
		}
		head, tail, total := kept.Kept()
		o := journal.ServiceLog{Log: excerpt.End(string(append(head, tail...)), maxLogRecorded), Name: s.Name}
		if int64(len(head)+len(tail)) < total {
			o.Log = excerpt.End(string(tail), maxLogRecorded)
			o.More = total - int64(len(tail))
		}
		list = append(list, o)
	}
	return list
}

// tail returns the end of the log, for readers and models.
func (s *service) tail() string {
	var out sandbox.Output
	s.mu.Lock()
	out.Head, out.Tail, out.Total = s.log.Kept()
	s.mu.Unlock()
	if s.hasEnded() && s.exit.Ended == sandbox.Refused {
		out = s.exit.Stderr
	}
	return ending(out, maxLogTold)
}

// ending returns the end of an output.
func ending(o sandbox.Output, most int) string {
	return strings.TrimSpace(excerpt.End(strings.ToValidUTF8(string(o.Bytes()), ""), most))
}

func (s *service) hasEnded() bool { return s.life != nil && s.life.Err() != nil }

// how describes the end of a service.
func (s *service) how() string {
	switch e := s.exit; {
	case s.err != nil:
		return "its sandbox was lost"
	case e.Ended == sandbox.Exited:
		return fmt.Sprintf("it exited with code %d", e.Code)
	case e.Ended == sandbox.Refused:
		return "it could not be started"
	case e.Ended == sandbox.Signaled:
		return fmt.Sprintf("it was killed by signal %d", e.Code-128)
	case e.Ended == sandbox.OutOfMem:
		return "it was killed at the limit of memory"
	case e.Ended == sandbox.DiskFull:
		return "it was killed at the limit of disk"
	default:
		return "it was stopped"
	}
}

// ready waits until a service is ready, has ended, or its time is up.
func (v *services) ready(ctx context.Context, s *service) error {
	cmd := sandbox.Cmd{ID: "ready " + s.Name, Argv: s.Ready, Timeout: 2 * s.Patience()} // ctx ends earlier
	switch {
	case s.Port != 0:
		cmd.Argv, cmd.Port = []string{fmt.Sprintf("port %d", s.Port)}, s.Port
	case s.Ready == nil:
		return nil
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.Patience())
	defer cancel()
	defer context.AfterFunc(v.ctx, cancel)()
	defer context.AfterFunc(s.life, cancel)() // a check of an ended service need not be waited for
	var last sandbox.Exit
	for pause := minReadyPause; ; pause = min(2*pause, maxReadyPause) {
		e, err := v.box.Exec(ctx, cmd)
		switch {
		case s.hasEnded():
			return s.failure(s.how()+" before it was ready", "", "correct its command, which has to stay in the foreground: its background processes end with it")
		case err != nil:
			return fmt.Errorf("flow: ask whether service %s is ready: %w", s.Name, err)
		case e.Ended == sandbox.Exited && e.Code == 0:
			return nil
		case e.Ended == sandbox.Refused:
			return s.failure("its ready command cannot be started", string(e.Stderr.Bytes()), "name a program that the sandbox has, or a port")
		}
		if e.Ended != sandbox.Cancelled {
			last = e
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		if ctx.Err() != nil && !s.hasEnded() {
			if time.Since(began) < s.Patience() {
				return context.Cause(ctx)
			}
			said := cmp.Or(ending(last.Stderr, 300), ending(last.Stdout, 300))
			return s.failure(s.asked()+" within "+s.Patience().String(), said, "correct the service or its ready, or give it more with timeout_ms")
		}
	}
}

// asked describes the result of a failed readiness check.
func (s *service) asked() string {
	if s.Port != 0 {
		return fmt.Sprintf("its port %d took no connection", s.Port)
	}
	return "its ready command did not exit with 0"
}

// failure returns the reason why a call beside a service cannot begin.
func (s *service) failure(why, said, remedy string) error {
	text := fmt.Sprintf("service %s is not ready: %s", s.Name, why)
	if said = strings.TrimSpace(said); said != "" {
		text += " (" + excerpt.Clip(said, 300) + ")"
	}
	log := s.tail()
	if log != "" {
		text += "; its log ends with " + fmt.Sprintf("%q", excerpt.End(log, 300))
	}
	return &tool.Failure{Kind: tool.SandboxUnavailable, Message: text + "; " + remedy, Detail: log}
}

// serviceEnd is the unexpected end of a service.
type serviceEnd struct {
	How  string `json:"how"`
	Log  string `json:"log,omitempty"`
	Name string `json:"name"`
}

// note records services that ended since the last call of note.
func (v *services) note() {
	for _, s := range v.list {
		if !s.noted && s.hasEnded() {
			s.noted = true
			v.ended = append(v.ended, serviceEnd{How: s.how(), Log: s.tail(), Name: s.Name})
		}
	}
}

// take returns the services that ended since the last report of a call.
func (v *services) take() []serviceEnd {
	if v == nil {
		return nil
	}
	v.note()
	ended := v.ended
	v.ended = nil
	return ended
}

// ServiceEnds are the ends of services to report in the next result of a call.
type ServiceEnds []serviceEnd

const serviceEndNote = "these services ended before or during this call; those that do not run are started again before the next command"

// Amend adds the ends to the body of a call's result.
func (l ServiceEnds) Amend(body json.RawMessage) json.RawMessage {
	if len(l) == 0 {
		return body
	}
	text, err := canonical.Marshal(struct {
		Ended []serviceEnd `json:"ended"`
		Note  string       `json:"note"`
	}{l, serviceEndNote})
	if err != nil { // it holds strings, which always encode
		panic(err)
	}
	return Beside(body, "services", text)
}

// Warning returns the same as text for the readers of the run.
func (l ServiceEnds) Warning() string {
	var parts []string
	for _, e := range l {
		text := "service " + e.Name + " ended: " + e.How
		if _, last, ok := strings.Cut("\n"+e.Log, "\n"); ok && last != "" {
			text += ", " + fmt.Sprintf("%q", excerpt.Clip(last[strings.LastIndexByte(last, '\n')+1:], 120))
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// end stops the services; the sandbox is closed next.
func (v *services) end() {
	if v != nil {
		v.stop()
	}
}

// wait waits for the services to end.
func (v *services) wait() {
	if v != nil {
		v.done.Wait()
	}
}

// Outside reports whether services keep state outside of the workspace. Services of a
// later release, which cannot be parsed, may.
func Outside(text string) bool {
	list, err := sandbox.ParseServices(text)
	return err != nil || slices.ContainsFunc(list, func(s sandbox.Service) bool { return s.Outside })
}

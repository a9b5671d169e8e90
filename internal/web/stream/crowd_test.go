package stream_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

var (
	crowd    = flag.Int("crowd", 1000, "readers of TestCrowd")
	crowdFor = flag.Duration("crowd.for", 0, "how long TestCrowd has runs; 0 is three runs")
)

// TestCrowd has many readers of a tenant and of a run, whose connections break at random
// while runs go on. Each has all events of the records in the end, each once, and the whole
// text of the run that it reads.
func TestCrowd(t *testing.T) {
	w := newWorld(t)
	long := w.submit("agent")
	home := w.sessionStarted(long)
	paths := []string{"/run/" + string(long), "/tree/" + string(home), "/tenant/all?after=end"}
	readers := make([]*crowdReader, *crowd)
	var reading, opened sync.WaitGroup
	stop := make(chan struct{})
	for i := range readers {
		r := &crowdReader{w: w, path: paths[i%len(paths)], stop: stop, ends: map[run.ID]bool{}, random: rand.New(rand.NewPCG(1, uint64(i)))} //nolint:gosec // a test
		readers[i] = r
		opened.Add(1)
		reading.Go(func() { r.read(sync.OnceFunc(opened.Done)) })
	}
	opened.Wait()
	began := time.Now()
	var runs []run.ID
	text := ""
	for i := 0; i < 3 || time.Since(began) < *crowdFor; i++ {
		id := w.submit("fan")
		runs = append(runs, id)
		for j := range 20 {
			piece := fmt.Sprintf("%d.%d ", i, j)
			text += piece
			w.write(piece)
			time.Sleep(2 * time.Millisecond) // as a model writes
		}
		w.ended(id)
	}
	w.write("")
	w.ended(long)
	last := w.submit("fan") // the mark up to which readers of the tenant read
	w.ended(last)
	for _, r := range readers {
		r.finishAt(long, last)
	}
	close(stop)
	reading.Wait()
	w.checkCrowd(readers, paths, long, append(runs, last))
}

// sessionStarted waits until a run has started, and returns its session.
func (w *world) sessionStarted(id run.ID) session.ID {
	w.t.Helper()
	r := w.open("/run/"+string(id), "")
	defer r.close()
	all := r.until(messages.EventRunStarted)
	return all[len(all)-1].Session
}

// crowdReader is a reader whose connection breaks at random.
type crowdReader struct {
	w      *world
	path   string
	stop   chan struct{} // closed when connections break no more, and until is set
	random *rand.Rand
	until  run.ID

	events      []string // of records
	ends        map[run.ID]bool
	connections int
	refused     int
}

func (r *crowdReader) finishAt(long, last run.ID) {
	if r.until = long; r.tenant() {
		r.until = last
	}
}

// done reports whether no more runs come, and the reader has the end of the last one.
func (r *crowdReader) done() bool {
	select {
	case <-r.stop:
		return r.ends[r.until]
	default:
		return false
	}
}

// read reads until it is done.
func (r *crowdReader) read(opened func()) {
	defer opened()
	for id := ""; !r.done(); {
		s, err := r.w.try(r.path, id)
		// Too many connect at once, or the records are behind for longer than a request waits.
		if err == nil && (s.code == http.StatusServiceUnavailable || s.code == http.StatusGatewayTimeout) {
			s.close()
			r.refused++
			time.Sleep(time.Duration(100+r.random.IntN(900)) * time.Millisecond)
			continue
		}
		if err != nil || s.code != http.StatusOK {
			if s != nil && s.code == http.StatusNoContent { // it has all of the run
				s.close()
				return
			}
			if s != nil {
				s.lines.Scan()
				err = errors.New(s.lines.Text())
			}
			r.w.t.Errorf("%s behind %q: %v", r.path, id, err)
			return
		}
		if id == "" {
			if r.tenant() {
				s.position()
			}
			opened()
		}
		breaks := time.AfterFunc(10*time.Millisecond+time.Duration(r.random.Int64N(int64(max(300*time.Millisecond, *crowdFor/20)))), s.cancel)
		for g, ok := s.next(); ok; g, ok = s.next() {
			if !g.durable() {
				continue
			}
			r.events = append(r.events, g.data)
			if g.Kind == messages.EventRunEnded {
				r.ends[g.Run] = true
			}
		}
		breaks.Stop()
		id = s.last
		s.close()
		r.connections++
	}
}

func (r *crowdReader) tenant() bool { return strings.HasPrefix(r.path, "/tenant") }

// upToEnd returns the events up to the end of a run.
func upToEnd(events []string, id run.ID) []string {
	end := slices.IndexFunc(events, func(e string) bool {
		return strings.Contains(e, `"kind":"`+string(messages.EventRunEnded)+`"`) && strings.Contains(e, `"run":"`+string(id)+`"`)
	})
	return events[:end+1]
}

// checkCrowd compares the events of each reader with those of a reader who comes afterwards.
func (w *world) checkCrowd(readers []*crowdReader, paths []string, long run.ID, runs []run.ID) {
	w.t.Helper()
	drops, refused := 0, 0
	for _, r := range readers {
		refused += r.refused
	}
	for i, path := range paths[:2] {
		all := w.open(path, "")
		var want []string
		for _, g := range durable(all.until(messages.EventRunEnded)) {
			want = append(want, g.data)
		}
		all.close()
		for j := i; j < len(readers); j += len(paths) {
			r := readers[j]
			drops += r.connections
			if len(r.events) != len(want) {
				w.t.Errorf("reader %d of %s, %d connections: %d events, want %d", j, path, r.connections, len(r.events), len(want))
				continue
			}
			for k := range want {
				if r.events[k] != want[k] {
					w.t.Errorf("reader %d of %s, event %d is %s, want %s", j, path, k, r.events[k], want[k])
					break
				}
			}
		}
	}
	// Readers of the tenant begin behind the start of the long run.
	for j := 2; j < len(readers); j += len(paths) {
		drops += readers[j].connections
		seen := map[string]bool{}
		for _, e := range readers[j].events {
			if seen[e] {
				w.t.Fatalf("reader %d of the tenant has twice: %s", j, e)
			}
			seen[e] = true
		}
		// Behind the mark the last runs of the last fan-out may be recorded or not.
		mine, first := upToEnd(readers[j].events, runs[len(runs)-1]), upToEnd(readers[2].events, runs[len(runs)-1])
		if !slices.Equal(mine, first) {
			w.t.Errorf("reader %d of the tenant has other events than reader 2: %d and %d", j, len(mine), len(first))
		}
	}
	if drops < 2*len(readers) {
		w.t.Errorf("%d connections of %d readers: too few broke", drops, len(readers))
	}
	w.t.Logf("%d readers, %d connections, %d refused for a moment, %d runs beside %s", len(readers), drops, refused, len(runs), long)
}

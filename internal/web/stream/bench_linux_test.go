package stream_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/sandbox/local"
)

const (
	// firstTokenBar bounds how much later a piece of an answer reaches a reader over HTTP
	// than a client over NATS, in the median.
	firstTokenBar = 3 * time.Millisecond
	// watchersBar bounds the processor time of a server with watchers of one run, as a
	// multiple of a loop that writes the same bytes to as many connections.
	watchersBar = 2.0

	watchers = 1000
	pieces   = 200
	pieceGap = 20 * time.Millisecond
	tokens   = 200
)

// crowdOf is the variable with the address, and the request, of the connections that a
// child process reads.
const crowdOf = "STREAM_TEST_CROWD"

func TestMain(m *testing.M) {
	if at, request, ok := strings.Cut(os.Getenv(crowdOf), "|"); ok {
		readCrowd(at, request)
		return
	}
	local.Reexec()
	natstest.Main(m)
}

// readCrowd reads as many connections as there are watchers, up to the end of the run. It
// prints a line when all of them are open, and one when all have ended.
func readCrowd(at, request string) {
	var opened, read sync.WaitGroup
	opened.Add(watchers)
	for range watchers {
		read.Go(func() {
			c, err := new(net.Dialer).DialContext(context.Background(), "tcp", at)
			if err == nil {
				_, err = io.WriteString(c, request)
			}
			lines := bufio.NewReaderSize(c, 16<<10)
			first := true
			for err == nil {
				var line []byte
				if line, err = lines.ReadSlice('\n'); first {
					opened.Done()
					first = false
				}
				if bytes.Contains(line, []byte("run.ended")) {
					return
				}
			}
			fmt.Fprintln(os.Stderr, err)
		})
		time.Sleep(time.Millisecond) // the backlog of a listener is small
	}
	opened.Wait()
	fmt.Println("open")
	read.Wait()
	fmt.Println("done")
}

// crowdProcess starts a process that reads watchers connections, waits until they are open,
// and returns a function that waits for their end.
func crowdProcess(b *testing.B, at, request string) (wait func()) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0]) //nolint:gosec // this program
	cmd.Env = append(os.Environ(), crowdOf+"="+at+"|"+request)
	cmd.Stderr = b.Output()
	out := bufio.NewScanner(must.Get(cmd.StdoutPipe())(b))
	must.Do(b, cmd.Start())
	if !out.Scan() || out.Text() != "open" {
		b.Fatal("the readers do not open")
	}
	return func() {
		b.Helper()
		if !out.Scan() || out.Text() != "done" {
			b.Fatal("the readers do not end")
		}
		must.Do(b, cmd.Wait())
	}
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkWatchers compares the processor time of a server, with its node and its NATS
// server, while 1,000 watchers read the answer of one run, to that of a loop that writes
// the same bytes to as many connections. The watchers are another process.
func BenchmarkWatchers(b *testing.B) {
	for b.Loop() {
		served, text := serveWatchers(b)
		bare := writeBare(b, text)
		ratio := float64(served) / float64(bare)
		b.ReportMetric(served.Seconds(), "s-served")
		b.ReportMetric(bare.Seconds(), "s-bare")
		b.ReportMetric(ratio, "ratio")
		b.ReportMetric(watchersBar, "ratio-bar")
		if ratio > watchersBar {
			b.Errorf("%d watchers cost %.2f times the bare loop (%v, %v), bar %.1f", watchers, ratio, served, bare, watchersBar)
		}
	}
}

// serveWatchers returns the processor time, and the text of each event of the answer.
func serveWatchers(b *testing.B) (time.Duration, []string) {
	b.Helper()
	w := newWorld(b)
	id := w.submit("agent")
	r := w.open("/run/"+string(id), "")
	defer r.close()
	r.until(messages.EventRunStarted)
	wait := crowdProcess(b, w.http.Listener.Addr().String(), "GET /run/"+string(id)+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
	began := cpuTime()
	for i := range pieces {
		w.write(fmt.Sprintf("token %d ", i))
		time.Sleep(pieceGap)
	}
	w.write("")
	wait()
	took := cpuTime() - began
	var text []string
	for _, g := range r.rest() {
		event := "event: " + string(g.Kind) + "\ndata: " + g.data + "\n"
		if g.id != "" {
			event += "id: " + g.id + "\n"
		}
		text = append(text, strconv.FormatInt(int64(len(event)+1), 16)+"\r\n"+event+"\n\r\n")
	}
	return took, text
}

// writeBare returns the processor time of writing texts to as many connections.
func writeBare(b *testing.B, text []string) time.Duration {
	b.Helper()
	l := must.Get(new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0"))(b)
	defer l.Close()
	var all []net.Conn
	accepted := make(chan error, 1)
	go func() {
		for range watchers {
			c, err := l.Accept()
			if err == nil {
				_, err = io.WriteString(c, "\n")
			}
			if err != nil {
				accepted <- err
				return
			}
			all = append(all, c)
		}
		accepted <- nil
	}()
	wait := crowdProcess(b, l.Addr().String(), "\n")
	must.Do(b, <-accepted)
	began := cpuTime()
	for _, t := range text {
		data := []byte(t)
		for _, c := range all {
			must.Get(c.Write(data))(b)
		}
		time.Sleep(pieceGap)
	}
	wait()
	took := cpuTime() - began
	for _, c := range all {
		must.Do(b, c.Close())
	}
	return took
}

// BenchmarkFirstToken measures how much later a piece of an answer reaches a reader over
// HTTP than a client over NATS.
func BenchmarkFirstToken(b *testing.B) {
	for b.Loop() {
		w := newWorld(b)
		id := w.submit("agent")
		r := w.open("/run/"+string(id), "")
		r.until(messages.EventStepStarted) // from here on no delta is missing
		ctx, cancel := context.WithTimeout(b.Context(), within)
		type seen struct {
			n  uint64
			at time.Time
		}
		ready, nats, http := make(chan struct{}), make(chan seen, tokens), make(chan seen, tokens)
		go func() {
			for d, err := range w.client.Runs.Deltas(ctx, id) {
				switch {
				case err != nil:
					return
				case d.Run == "":
					close(ready)
				case d.N > 0:
					nats <- seen{d.N, time.Now()}
				}
			}
		}()
		go func() {
			for {
				g, ok := r.next()
				if !ok {
					return
				}
				if g.Kind == messages.EventTextDelta {
					http <- seen{g.N, time.Now()}
				}
			}
		}()
		<-ready
		late := make([]time.Duration, tokens)
		for i := range late {
			w.write("token ")
			one, other := <-nats, <-http
			if one.n != other.n {
				b.Fatalf("delta %d over NATS, %d over HTTP", one.n, other.n)
			}
			late[i] = other.at.Sub(one.at)
			time.Sleep(2 * time.Millisecond)
		}
		w.write("")
		w.ended(id)
		cancel()
		r.close()
		slices.Sort(late)
		p50 := late[tokens/2]
		b.ReportMetric(float64(p50.Microseconds())/1000, "ms-p50")
		b.ReportMetric(float64(late[tokens*99/100].Microseconds())/1000, "ms-p99")
		b.ReportMetric(float64(firstTokenBar.Milliseconds()), "ms-bar")
		if p50 > firstTokenBar {
			b.Errorf("a token is %v later over HTTP, bar %v", p50, firstTokenBar)
		}
	}
}

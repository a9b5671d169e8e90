//go:build e2e && linux

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/session"
)

var flagAway = flag.Duration("away", 2*time.Second, "how long TestPageLeftOpen keeps the router from NATS")

// pen is a model that answers each call with the pieces of a channel, up to an empty one.
type pen chan string

func (p pen) Client(context.Context, llm.Provider) (llm.Client, error) { return p, nil }

func (p pen) Complete(ctx context.Context, _ *llm.Request, sink func(llm.Delta)) (*llm.Response, error) {
	var text strings.Builder
	for {
		select {
		case piece := <-p:
			if piece == "" {
				return &llm.Response{Text: text.String(), Finish: llm.FinishStop, Usage: session.Usage{Input: 3, Output: 2}}, nil
			}
			text.WriteString(piece)
			sink(llm.Delta{Text: piece})
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// gate is an address that leads to a server, or to nothing while it is shut.
type gate struct {
	listener net.Listener
	mu       sync.Mutex
	shut     bool
	open     map[net.Conn]bool
}

func startGate(t *testing.T, server string) *gate {
	t.Helper()
	g := &gate{listener: must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t), open: map[net.Conn]bool{}}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := g.listener.Accept()
			if err != nil {
				return
			}
			s, err := new(net.Dialer).DialContext(t.Context(), "tcp", server)
			if err != nil || !g.enter(c, s) {
				_ = c.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{c, s}, {s, c}} {
				work.Go(func() {
					_, _ = io.Copy(way[0], way[1]) // until either end closes
					g.leave(c, s)
				})
			}
		}
	})
	t.Cleanup(func() { _ = g.listener.Close(); g.set(true); work.Wait() })
	return g
}

// enter notes the connections of a way through an open gate.
func (g *gate) enter(c, s net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		_ = s.Close()
		return false
	}
	g.open[c], g.open[s] = true, true
	return true
}

func (g *gate) leave(all ...net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
		delete(g.open, c)
	}
}

// set shuts or opens the gate.
func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut = shut; shut {
		for c := range g.open {
			_ = c.Close()
		}
	}
}

// TestPageLeftOpen leaves the page of a run open while its router is killed and starts again
// at the same port, and while the router has no NATS. The run goes on meanwhile. Without a
// reload the page is live again, and shows each answer once and the whole draft.
func TestPageLeftOpen(t *testing.T) {
	t.Parallel()
	srv := natstest.StartConfigured(t, "")
	p := make(pen)
	write := func(pieces ...string) {
		t.Helper()
		for _, piece := range pieces {
			select {
			case p <- piece:
			case <-time.After(time.Minute):
				t.Fatalf("nobody takes the piece %q", piece)
			}
		}
	}
	const answers = 9
	n := must.Get(node.Start(t.Context(), &node.Options{
		NATS: node.NATS{URL: srv.URL(), Level: "lazy"}, Store: t.TempDir(), Models: node.Models{Source: p, Default: "pen"},
		Workflows: []flow.Registration{{Name: "diary", Revision: "1", New: func() flow.Workflow {
			return flow.Func(func(ctx context.Context, s session.Session) (_ session.Session, err error) {
				for i := 0; i < answers && err == nil; i++ {
					s, err = (&flow.Agent{Name: "writer"}).Forward(ctx, s.With(session.UserText("Go on.")))
				}
				return s, err
			})
		}}},
	}))(t)
	t.Cleanup(func() { must.Report(t, n.Close()) })
	g := startGate(t, strings.TrimPrefix(srv.URL(), "nats://"))
	through := "nats://" + g.listener.Addr().String()
	d := newDesk(t)
	at := fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))
	router := func() *job {
		r := d.start("router", "-nats", through, "-level", "lazy", "-http", at)
		r.until("address", func() bool { c, err := net.Dial("tcp", at); return err == nil && c.Close() == nil })
		return r
	}
	r := router()
	d.rath("submit", "diary", "--id", "diary-1", "-m", "Go.", "--server", srv.URL()).want(t, 0)
	token := strings.Fields(d.rath("token", "create", "--user", "bob", "--role", "client", "--server", srv.URL()).stdout)[0]

	b := browse(t)
	b.cut = true
	page := "http://" + at + "/t/default/runs/diary-1"
	b.to(page)
	b.do(chromedp.SendKeys(chromedp.CSS("#secret"), token+"\r"))
	b.until("window.opened = location.pathname.endsWith('diary-1') && document.getElementById('rows')")
	live := func(draft string, rows ...string) {
		t.Helper()
		const said = `[...document.querySelectorAll('#rows > li .said > :not(.draft):not(.drafted)')].map((e) => e.textContent.trim()).join('|')`
		b.until(fmt.Sprintf("%s === %q && (document.querySelector('.drafted') || {textContent: ''}).textContent === %q", said, strings.Join(rows, "|"), draft))
		b.until("document.getElementById('connection').hidden && document.getElementById('liveness').textContent.startsWith('Live')")
	}
	write("one", "", "two ")
	live("two ", "one")

	r.signal(syscall.SIGKILL)
	r.wait()
	b.sees("#connection", "Not connected since")
	write("and more", "", "three", "", "four ")
	router()
	live("four ", "one", "two and more", "three")

	g.set(true)
	write("and more", "", "five", "", "six ")
	time.Sleep(*flagAway) // NATS is away so long
	write("and ")
	g.set(false)
	write("more")
	live("six and more", "one", "two and more", "three", "four and more", "five")
	write("", "seven", "", "eight", "", "nine", "")
	b.sees(".state", "Done.")
	all := []string{"one", "two and more", "three", "four and more", "five", "six and more", "seven", "eight", "nine"}
	if !b.is(fmt.Sprintf("[...document.querySelectorAll('#rows > li .said')].map((e) => e.textContent.trim()).join('|') === %q", strings.Join(all, "|"))) {
		b.fatal(fmt.Errorf("the rows are not %q", all))
	}
	if !b.is("window.opened && new Set([...document.querySelectorAll('#rows > li')].map((e) => e.id)).size === document.querySelectorAll('#rows > li').length") {
		b.fatal(errors.New("the page was loaded again, or has a row twice"))
	}
}

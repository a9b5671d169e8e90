package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

var (
	services   = promise{func(c sandbox.Capabilities) bool { return c.Services }, "no services"}
	noServices = promise{func(c sandbox.Capabilities) bool { return !c.Services }, ""}
)

// servicePort is the port of the server of these checks, in each sandbox.
const servicePort = 8417

var connectCmd = sandbox.Cmd{Argv: []string{"port"}, Port: servicePort}

// serve runs the server of the probe, until it is killed.
func serve() error {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(servicePort)))
	if err != nil {
		return err
	}
	fmt.Println("listens")
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "served "+r.URL.Path) // the client can check the request path
	}))
}

// ask is a client of the server.
func ask() error {
	r, err := http.Get("http://127.0.0.1:" + strconv.Itoa(servicePort) + "/it")
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if body, err := io.ReadAll(r.Body); string(body) != "served /it" {
		return fmt.Errorf("it says %q, %v", body, err)
	}
	return nil
}

// serve starts the probe's server in a sandbox, without a timeout, and waits until it
// accepts connections. end returns the result of its Exec; cancel stops it.
func (b *box) serve() (end func() (sandbox.Exit, error), cancel func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	b.t.Cleanup(cancel)
	var exit sandbox.Exit
	var err error
	var done sync.WaitGroup
	listens := make(chan struct{})
	var once sync.Once
	done.Go(func() {
		defer once.Do(func() { close(listens) })
		exit, err = b.Exec(ctx, sandbox.Cmd{
			Argv: []string{"./" + probeName, "serve"}, Timeout: sandbox.NoTimeout, Offload: callback(func() { once.Do(func() { close(listens) }) }),
		})
	})
	<-listens
	return func() (sandbox.Exit, error) { done.Wait(); return exit, err }, cancel
}

// testServices: commands reach a server that another command of the sandbox runs, while
// that command runs, and no other process reaches it. Processes that the server started die
// with it.
func testServices(t *testing.T, s *suite) {
	b := s.openSpec(t, sandbox.Spec{Dir: t.TempDir(), Services: true})
	if !b.Info().Services {
		t.Error("the sandbox does not say that it has services")
	}
	b.installProbe()
	if e := b.exec(connectCmd); e.Ended != sandbox.Exited || e.Code != 1 || len(e.Stderr.Bytes()) == 0 {
		t.Errorf("a port that no service has: %s", describe(e))
	}
	end, cancel := b.serve()
	b.want(b.exec(connectCmd), sandbox.Exited, 0, "")
	for range 2 {
		if got := b.probe(nil, "ask")["ask"].text; got != "succeeded" {
			t.Errorf("a command asks the service: %s", got)
		}
	}
	// The outside stays out of reach.
	for name, result := range b.probe(nil, "netlink", "packet", "raw", "connect to the Internet") {
		if result.text == "succeeded" {
			t.Errorf("%s: %s", name, result.text)
		}
	}
	other := s.openSpec(t, sandbox.Spec{Dir: t.TempDir(), Services: true})
	other.installProbe()
	if e := other.exec(connectCmd); e.Code != 1 {
		t.Errorf("another sandbox has the port: %s", describe(e))
	}
	if got := other.probe(nil, "ask")["ask"].text; got == "succeeded" {
		t.Error("another sandbox asks the service")
	}
	cancel()
	if e, err := end(); err != nil || e.Ended != sandbox.Cancelled {
		t.Errorf("the service that was stopped: %v, %s", err, describe(e))
	}
	if e := b.exec(connectCmd); e.Code != 1 {
		t.Errorf("the port outlives the service: %s", describe(e))
	}
}

// testServiceTree: the processes of a command die with it, beside a service, which keeps
// running. The processes of the service die with the service.
func testServiceTree(t *testing.T, s *suite) {
	b := s.openSpec(t, sandbox.Spec{Dir: t.TempDir(), Services: true})
	b.installProbe()
	end, _ := b.serve()
	b.want(b.sh(detach+"echo done"), sandbox.Exited, 0, "done\n")
	b.quiet("beat")
	b.want(b.exec(connectCmd), sandbox.Exited, 0, "")

	ctx, cancel := context.WithCancel(t.Context())
	b.ends(ctx, sandbox.Cmd{
		Argv: []string{"sh", "-c", strings.ReplaceAll(detach, "beat", "second") + "echo lives; sleep 100"}, Timeout: sandbox.NoTimeout, Offload: callback(cancel),
	}, sandbox.Cancelled)
	b.quiet("second")
	b.want(b.exec(connectCmd), sandbox.Exited, 0, "")
	if err := b.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if _, err := end(); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("the service of a closed sandbox ended with %v", err)
	}
}

// testServiceFiles: a service's files are visible to commands, and in the directory after
// the next command or a Sync. The service reads the files of the caller and of commands.
func testServiceFiles(t *testing.T, s *suite) {
	b := s.openSpec(t, sandbox.Spec{Dir: t.TempDir(), Services: true})
	b.host("asked", "")
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	defer done.Wait()
	defer cancel()
	began := make(chan struct{})
	done.Go(func() {
		// It answers each request with another file, and keeps a log of them.
		e, err := b.Exec(ctx, sandbox.Cmd{
			Argv:    []string{"sh", "-c", `echo begun; mkdir -p out; while :; do q=$(cat asked); if [ ! -e "out/$q" ]; then echo "$q" >> log; echo "answer $q" > "out/.$q"; mv "out/.$q" "out/$q"; fi; sleep 0.01; done`},
			Timeout: sandbox.NoTimeout, Offload: callback(sync.OnceFunc(func() { close(began) })),
		})
		if err != nil || e.Ended != sandbox.Cancelled {
			t.Errorf("the service: %v, %s", err, describe(e))
		}
	})
	<-began
	await := `while [ ! -e "out/$0" ]; do sleep 0.01; done; cat "out/$0"`
	for i := range 5 {
		q := fmt.Sprint("q", i)
		b.host("asked", q)
		b.want(b.exec(sandbox.Cmd{Argv: []string{"sh", "-c", await, q}}), sandbox.Exited, 0, "answer "+q+"\n")
		if got := b.read("out/" + q); got != "answer "+q+"\n" {
			t.Errorf("the directory has %q after a command", got)
		}
	}
	b.want(b.sh(`rm asked; echo by command > asked; `+strings.ReplaceAll(await, "$0", "by command")), sandbox.Exited, 0, "answer by command\n")
	// It also writes between commands.
	b.host("asked", "last")
	y, elsewhere := b.Sandbox.(interface{ Sync(context.Context) error })
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if elsewhere {
			must.Do(t, y.Sync(t.Context()))
		}
		if _, err := os.Stat(filepath.Join(b.dir, "out", "last")); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("what the service wrote does not come to the directory")
		}
	}
	b.want(b.sh("cat log"), sandbox.Exited, 0, "q0\nq1\nq2\nq3\nq4\nby command\nlast\n")
}

// testServiceFlood: the whole output of a command without a timeout reaches Offload, beyond
// the limit for commands with a timeout, and the retained output is bounded.
func testServiceFlood(t *testing.T, s *suite) {
	b := s.openSpec(t, sandbox.Spec{Dir: t.TempDir(), Services: true})
	passed := counter{}
	e := b.exec(sandbox.Cmd{Argv: []string{"head", "-c", "20000000", "/dev/zero"}, Timeout: sandbox.NoTimeout, Output: 1000, Offload: &passed})
	if e.Ended != sandbox.Exited || e.Code != 0 || passed.n != 20_000_000 || len(e.Stdout.Head)+len(e.Stdout.Tail) != 1000 {
		t.Errorf("%d bytes passed, %d kept, ended %q", passed.n, len(e.Stdout.Head)+len(e.Stdout.Tail), e.Ended)
	}
}

type counter struct{ n int }

func (c *counter) Write(p []byte) (int, error) { c.n += len(p); return len(p), nil }

// testNoServices: a backend without a network per sandbox offers no services.
func testNoServices(t *testing.T, s *suite) {
	sb, err := s.backend.Open(t.Context(), sandbox.Spec{Dir: t.TempDir(), MinIsolation: s.caps.Isolation, Services: true})
	if err == nil {
		sb.Close()
	}
	if !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), "services") {
		t.Errorf("services that are not offered: %v", err)
	}
}

// testPortWithoutServices: a sandbox without services has no port to connect to.
func testPortWithoutServices(t *testing.T, s *suite) {
	b := s.open(t)
	if e, err := b.Exec(t.Context(), connectCmd); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("a port without services: %v, %s", err, describe(e))
	}
}

package opensandbox

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/sandbox/execd"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

// open opens a sandbox of an epoch of a session.
func open(t *testing.T, b *driver, epoch uint64) (sandbox.Sandbox, error) {
	t.Helper()
	return b.Open(t.Context(), sandbox.Spec{Dir: t.TempDir(), Owner: "acme/s1", Epoch: epoch})
}

func (s *server) count() (made, removed, there int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made, s.removed, len(s.boxes)
}

func (s *server) faulty(f func(http.ResponseWriter, *http.Request, func()) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// TestEpochs: a session's sandbox of an older epoch is deleted, and no sandbox opens while
// one of a newer epoch exists. Deleting a sandbox twice is no error.
func TestEpochs(t *testing.T) {
	s := newServer(t)
	b := s.backend(t)
	first, err := open(t, b, 7)
	must.Do(t, err)
	second, err := open(t, b, 8)
	must.Do(t, err)
	if _, _, there := s.count(); there != 1 {
		t.Errorf("%d sandboxes are there, want that of the newer epoch", there)
	}
	if _, err := first.Exec(t.Context(), sandbox.Cmd{Argv: []string{"true"}}); !errors.Is(err, sandbox.ErrLost) {
		t.Errorf("a command in the older one: %v", err)
	}
	if _, err := open(t, b, 7); !errors.Is(err, errNewer) {
		t.Errorf("the older epoch again: %v", err)
	}
	must.Do(t, first.Close())
	must.Do(t, second.Close())
}

// TestLostAnswer: a creation whose answer is lost is not repeated.
func TestLostAnswer(t *testing.T) {
	s := newServer(t)
	b := s.backend(t)
	_, err := b.Probe(t.Context())
	must.Do(t, err)
	var lost atomic.Bool
	s.faulty(func(w http.ResponseWriter, r *http.Request, carryOut func()) bool {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/sandboxes") || !lost.CompareAndSwap(false, true) {
			return false
		}
		carryOut()
		s.refuse(w, http.StatusGatewayTimeout, "", "no answer")
		return true
	})
	x, err := open(t, b, 1)
	must.Do(t, err)
	if made, _, there := s.count(); made != 2 || there != 1 {
		t.Errorf("%d sandboxes were made with that of Probe, %d are there", made, there)
	}
	must.Do(t, x.Close())
}

// TestErrors: an error has the server's code and the request, and leaves no sandbox.
func TestErrors(t *testing.T) {
	s := newServer(t)
	b := s.backend(t)
	b.o.Image = "broken@sha256:" + strings.Repeat("0", 64)
	if _, err := b.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "IMAGE_PULL no such image") {
		t.Errorf("a sandbox that fails: %v", err)
	}
	b.o.Image = testImage
	s.faulty(func(w http.ResponseWriter, _ *http.Request, _ func()) bool {
		s.refuse(w, http.StatusConflict, "NO_ROOM", "the quota is used up")
		return true
	})
	_, err := b.Probe(t.Context())
	if e, ok := errors.AsType[*serverError](err); !ok || e.Status != http.StatusConflict || e.Code != "NO_ROOM" || e.RequestID != "request-7" {
		t.Errorf("a refused creation: %#v, %v", err, err)
	}
	s.faulty(func(w http.ResponseWriter, _ *http.Request, _ func()) bool {
		http.Redirect(w, &http.Request{}, "http://127.0.0.1:9/", http.StatusTemporaryRedirect)
		return true
	})
	if _, err := b.Probe(t.Context()); statusOf(err) != http.StatusTemporaryRedirect {
		t.Errorf("the key goes where it is redirected: %v", err)
	}
	s.faulty(nil)
	b.o.Image = "tools:latest"
	if _, err := b.Probe(t.Context()); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("an image without a digest: %v", err)
	}
}

// TestStartingLost: the error of a sandbox that fails to start has its id and its last
// state. Only the created sandbox is queried, also if answers have another id.
func TestStartingLost(t *testing.T) {
	s := newServer(t)
	b := s.backend(t)
	var looks atomic.Int64
	s.faulty(func(w http.ResponseWriter, r *http.Request, _ func()) bool {
		if r.Method != http.MethodGet || path.Dir(r.URL.Path) != "/v1/sandboxes" {
			return false
		}
		if id := path.Base(r.URL.Path); id != "box-1" {
			t.Errorf("%q is asked for", id)
		}
		if looks.Add(1) == 1 {
			s.answer(w, http.StatusOK, remote{ID: "box-9", Status: status{State: "Scheduling"}})
		} else {
			s.refuse(w, http.StatusInternalServerError, "BROKEN", "no database")
		}
		return true
	})
	_, err := b.Probe(t.Context())
	if err == nil || !strings.Contains(err.Error(), `sandbox box-1 does not run, it is "Scheduling": `) || !strings.Contains(err.Error(), "BROKEN, no database") {
		t.Errorf("a sandbox that is not told of any more: %v", err)
	}
	if n := looks.Load(); n != 2 {
		t.Errorf("%d looks", n)
	}
}

// TestRenew: a sandbox is renewed while it is open, and not after it is closed.
func TestRenew(t *testing.T) {
	s := newServer(t)
	b := s.backend(t)
	b.renewEvery = 1100 * time.Millisecond // times of the API are whole seconds
	x, err := open(t, b, 1)
	must.Do(t, err)
	renewals := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.renewals)
	}
	for deadline := time.Now().Add(30 * time.Second); renewals() < 2; {
		if time.Now().After(deadline) {
			t.Fatal("it is not renewed")
		}
		time.Sleep(10 * time.Millisecond)
	}
	must.Do(t, x.Close())
	x.(*execd.Box).Place().(*instance).renewed.Wait()
}

// TestGone: a command whose sandbox ends is lost, and returns at once.
func TestGone(t *testing.T) {
	s := newServer(t)
	b := s.backend(t)
	x, err := open(t, b, 1)
	must.Do(t, err)
	began := make(chan string, 1)
	ended := make(chan error, 1)
	go func() {
		_, err := x.Exec(context.Background(), sandbox.Cmd{Argv: []string{"sh", "-c", "echo began; sleep 1000"}, Offload: writes(began)})
		ended <- err
	}()
	<-began
	s.mu.Lock()
	for id, h := range s.boxes {
		h.end()
		delete(s.boxes, id)
	}
	s.mu.Unlock()
	if err := <-ended; !errors.Is(err, sandbox.ErrLost) || !strings.Contains(err.Error(), "box-") {
		t.Errorf("the command: %v", err)
	}
	must.Do(t, x.Close())
}

type writes chan string

func (w writes) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

// TestEvents parses the forms of streams that servers may write.
func TestEvents(t *testing.T) {
	const end = `{"type":"execution_complete","execution_time":3}` + "\n\n"
	for name, tc := range map[string]struct {
		stream, want string
		err          error
	}{
		"as execd":         {`{"type":"init","text":"a"}` + "\n\n" + `{"type":"ping"}` + "\n\n" + end, "init:a ping: execution_complete:", nil},
		"as the standard":  {": comment\nevent: x\ndata: {\"type\":\"stdout\",\ndata: \"text\":\"b:c\"}\n\ndata:" + end, "stdout:b:c execution_complete:", nil},
		"other line ends":  {strings.ReplaceAll(`{"type":"init","text":"a"}`+"\n\n"+end, "\n", "\r\n"), "init:a execution_complete:", nil},
		"an unknown event": {`{"type":"weather","text":"rain","more":[1]}` + "\n\n" + end, "weather:rain execution_complete:", nil},
		"what comes after": {end + `{"type":"stdout","text":"x"}` + "\n\n", "execution_complete:", nil},
		"cut":              {`{"type":"init","text":"a"}` + "\n\n", "init:a", io.ErrUnexpectedEOF},
		"cut in an event":  {`{"type":"init","text":"a"}` + "\n\n" + `{"type":`, "init:a", errAny},
		"empty":            {"", "", io.ErrUnexpectedEOF},
		"no JSON":          {"data: <html>\n\n", "", errAny},
		"an error":         {`{"type":"error","error":{"ename":"CommandExecError","evalue":"2"}}` + "\n\n", "error:", errAny},
		"one long line":    {`{"type":"stdout","text":"` + strings.Repeat("x", 2<<20), "", bufio.ErrTooLong},
		"many lines":       {strings.Repeat("data: "+strings.Repeat("x", 1<<16)+"\n", 20), "", bufio.ErrTooLong},
	} {
		var got []string
		err := readEvents(strings.NewReader(tc.stream), func(e event) { got = append(got, e.Type+":"+e.Text) })
		if strings.Join(got, " ") != tc.want || !errors.Is(err, tc.err) && (tc.err != errAny || err == nil) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

var errAny = errors.New("any error")

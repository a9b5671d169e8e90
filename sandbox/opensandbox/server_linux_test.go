package opensandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
)

const (
	testKey   = "the key of the server"
	testImage = "example.org/tools@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// server is an OpenSandbox server as its API describes it. A sandbox is a set of processes
// on this host, in a directory of its own.
type server struct {
	t   *testing.T
	web *httptest.Server
	dir string // of all sandboxes; their users may traverse it

	mu       sync.Mutex
	next     int
	boxes    map[string]*hosted
	made     int
	removed  int
	renewals []time.Time
	// fault may answer a request in place of the server, before or after carrying it out.
	fault func(w http.ResponseWriter, r *http.Request, carryOut func()) bool
}

// hosted is a sandbox of the server.
type hosted struct {
	remote
	token   string
	looks   int // the number of queries until it runs
	expires time.Time

	mu       sync.Mutex
	commands map[string]*hostedCommand
}

type hostedCommand struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	code int
}

func newServer(t *testing.T) *server {
	t.Helper()
	dir, err := os.MkdirTemp("", "rath-service-")
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	must.Do(t, err)
	s := &server{t: t, dir: dir, boxes: make(map[string]*hosted)}
	s.web = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		s.mu.Lock()
		left := len(s.boxes)
		for _, b := range s.boxes {
			b.end()
		}
		s.mu.Unlock()
		s.web.Close()
		if left > 0 {
			t.Errorf("%d sandboxes are left at the server", left)
		}
		must.Report(t, os.RemoveAll(dir))
	})
	return s
}

// backend returns the backend under test, whose daemon may need the libraries of this host.
func (s *server) backend(t *testing.T) *driver {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	must.Do(t, os.WriteFile(key, []byte(testKey+"\n"), 0o600))
	b := newDriver(Options{URL: s.web.URL + "/v1", KeyFile: key, Image: testImage, Dir: s.dir})
	b.program = func() (*os.File, error) { return os.Open("/proc/self/exe") }
	return b
}

func (s *server) refuse(w http.ResponseWriter, code int, name, text string) {
	w.Header().Set("X-Request-ID", "request-7")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"code": name, "message": text})
}

func (s *server) answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	if rest, ok := strings.CutPrefix(r.URL.Path, "/box/"); ok {
		s.serveBox(w, r, rest)
		return
	}
	if r.Header.Get("OPEN-SANDBOX-API-KEY") != testKey {
		s.refuse(w, http.StatusUnauthorized, "UNAUTHORIZED", "no such key")
		return
	}
	s.mu.Lock()
	fault := s.fault
	s.mu.Unlock()
	if fault != nil && fault(w, r, func() { s.lifecycle(httptest.NewRecorder(), r) }) {
		return
	}
	s.lifecycle(w, r)
}

func (s *server) lifecycle(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/v1/"), "/")
	if path[0] != "sandboxes" {
		s.refuse(w, http.StatusNotFound, "NOT_FOUND", r.URL.Path)
		return
	}
	if len(path) == 1 {
		if r.Method == http.MethodPost {
			s.create(w, r)
		} else {
			s.list(w, r)
		}
		return
	}
	b := s.boxes[path[1]]
	if b == nil {
		s.refuse(w, http.StatusNotFound, "SANDBOX_NOT_FOUND", "no sandbox "+path[1])
		return
	}
	switch {
	case r.Method == http.MethodDelete:
		b.end()
		delete(s.boxes, b.ID)
		s.removed++
		w.WriteHeader(http.StatusNoContent)
	case len(path) == 3 && path[2] == "renew-expiration":
		var in struct{ ExpiresAt time.Time }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || !in.ExpiresAt.After(b.expires) {
			s.refuse(w, http.StatusBadRequest, "INVALID_EXPIRES_AT", fmt.Sprint("not later than before: ", err))
			return
		}
		b.expires = in.ExpiresAt
		s.renewals = append(s.renewals, in.ExpiresAt)
		s.answer(w, http.StatusOK, map[string]time.Time{"expiresAt": b.expires})
	case len(path) == 4 && path[2] == "endpoints":
		s.answer(w, http.StatusOK, endpoint{
			Endpoint: strings.TrimPrefix(s.web.URL, "http://") + "/box/" + b.ID + "/port/" + path[3],
			Headers:  map[string]string{"X-EXECD-ACCESS-TOKEN": b.token},
		})
	default:
		if b.looks--; b.looks == 1 {
			b.Status.State = "Scheduling" // not a state of any version of the API
		} else if b.looks <= 0 && b.Status.State != failed {
			b.Status.State = running
		}
		s.answer(w, http.StatusOK, b.remote)
	}
}

func (s *server) create(w http.ResponseWriter, r *http.Request) {
	var c creation
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil || c.Image.URI == "" || len(c.Entrypoint) == 0 || c.Timeout < 60 || c.Limits == nil {
		s.refuse(w, http.StatusBadRequest, "INVALID_REQUEST", fmt.Sprintf("%+v: %v", c, err))
		return
	}
	for k, v := range c.Metadata {
		if len(v) > 63 || strings.Trim(v, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			s.refuse(w, http.StatusBadRequest, "INVALID_METADATA", k+"="+v)
			return
		}
	}
	s.next++
	s.made++
	b := &hosted{token: rand.Text(), looks: 2, expires: time.Now().Add(time.Duration(c.Timeout) * time.Second), commands: make(map[string]*hostedCommand)}
	b.remote = remote{ID: fmt.Sprintf("box-%d", s.next), Metadata: c.Metadata, Status: status{State: "Pending", Reason: "CONTAINER_STARTING"}}
	if strings.Contains(c.Image.URI, "broken") {
		b.Status = status{State: failed, Reason: "IMAGE_PULL", Message: "no such image"}
	}
	s.boxes[b.ID] = b
	s.answer(w, http.StatusAccepted, b.remote)
}

func (s *server) list(w http.ResponseWriter, r *http.Request) {
	want, err := url.ParseQuery(r.URL.Query().Get("metadata"))
	if err != nil {
		s.refuse(w, http.StatusBadRequest, "INVALID_FILTER", err.Error())
		return
	}
	items := []remote{}
	for _, b := range s.boxes {
		match := true
		for k := range want {
			match = match && b.Metadata[k] == want.Get(k)
		}
		if match {
			items = append(items, b.remote)
		}
	}
	s.answer(w, http.StatusOK, map[string]any{"items": items, "pagination": map[string]any{"page": 1, "pageSize": 100, "totalItems": len(items), "totalPages": 1, "hasNextPage": false}})
}

// serveBox forwards a request to a sandbox: to the server's daemon, or to a listener there.
func (s *server) serveBox(w http.ResponseWriter, r *http.Request, path string) {
	f := strings.SplitN(path, "/", 4) // id, "port", number, rest
	s.mu.Lock()
	b := s.boxes[f[0]]
	s.mu.Unlock()
	if b == nil || len(f) < 3 || r.Header.Get("X-EXECD-ACCESS-TOKEN") != b.token {
		s.refuse(w, http.StatusUnauthorized, "UNAUTHORIZED", "no such sandbox or token")
		return
	}
	rest := "/" + append(f, "")[3]
	if f[2] != strconv.Itoa(execdPort) {
		proxy := httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: "127.0.0.1:" + f[2]})
			p.Out.URL.Path = rest
		}, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			s.refuse(w, http.StatusBadGateway, "BAD_GATEWAY", err.Error())
		}}
		proxy.ServeHTTP(w, r)
		return
	}
	switch {
	case rest == "/ping":
	case rest == "/files/upload":
		b.upload(s, w, r)
	case rest == "/command" && r.Method == http.MethodPost:
		b.command(s, w, r)
	case strings.HasPrefix(rest, "/command/status/"):
		b.status(s, w, strings.TrimPrefix(rest, "/command/status/"))
	case strings.HasPrefix(rest, "/command/") && strings.HasSuffix(rest, "/logs"):
		b.logs(s, w, r, strings.TrimSuffix(strings.TrimPrefix(rest, "/command/"), "/logs"))
	default:
		s.refuse(w, http.StatusNotFound, "NOT_FOUND", rest)
	}
}

func (b *hosted) upload(s *server, w http.ResponseWriter, r *http.Request) {
	form, err := r.MultipartReader()
	if err != nil {
		s.refuse(w, http.StatusBadRequest, "INVALID_FILE", err.Error())
		return
	}
	var about struct {
		Path string
		Mode int
	}
	for {
		part, err := form.NextPart()
		if err == io.EOF {
			return
		}
		if err == nil {
			err = uploadPart(part, &about.Path, &about.Mode)
		}
		if err != nil {
			s.refuse(w, http.StatusInternalServerError, "RUNTIME_ERROR", err.Error())
			return
		}
	}
}

func uploadPart(part *multipart.Part, path *string, mode *int) error {
	if part.FormName() == "metadata" {
		var about struct {
			Path string
			Mode int
		}
		err := json.NewDecoder(part).Decode(&about)
		*path, *mode = about.Path, about.Mode
		return err
	}
	perm, err := strconv.ParseUint(strconv.Itoa(*mode), 8, 32)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(*path), 0o755); err != nil {
		return err
	}
	data, err := io.ReadAll(part)
	if err != nil {
		return err
	}
	// A process that is forked meanwhile would have the file open for writing until it
	// executes its own program, and a file open for writing cannot be executed.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return errors.Join(os.WriteFile(*path, data, 0o600), os.Chmod(*path, os.FileMode(perm)))
}

// command runs a shell command, as execd does: its output goes to a file, and its lines are
// sent as events without a field's name.
func (b *hosted) command(s *server, w http.ResponseWriter, r *http.Request) {
	var in command
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Command == "" {
		s.refuse(w, http.StatusBadRequest, "INVALID_REQUEST_BODY", fmt.Sprint(err))
		return
	}
	c := &hostedCommand{done: make(chan struct{}), log: filepath.Join(s.dir, rand.Text()+".output")}
	out, err := os.Create(c.log)
	if err != nil {
		s.refuse(w, http.StatusInternalServerError, "RUNTIME_ERROR", err.Error())
		return
	}
	c.cmd = exec.CommandContext(context.Background(), "sh", "-c", in.Command)
	c.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for k, v := range in.Envs {
		c.cmd.Env = append(c.cmd.Env, k+"="+v)
	}
	c.cmd.Stdout, c.cmd.Stderr = out, out
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if in.UID != nil && in.GID != nil {
		c.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(*in.UID), Gid: uint32(*in.GID)} //nolint:gosec // a test's
	}
	send := func(e map[string]any) {
		data, _ := json.Marshal(e)
		_, _ = w.Write(append(data, '\n', '\n'))
		w.(http.Flusher).Flush()
	}
	w.Header().Set("Content-Type", "text/event-stream")
	id := rand.Text()
	send(map[string]any{"type": "init", "text": id})
	if err := c.cmd.Start(); err != nil {
		send(map[string]any{"type": "error", "error": map[string]string{"ename": "CommandExecError", "evalue": err.Error()}})
		return
	}
	b.mu.Lock()
	b.commands[id] = c
	b.mu.Unlock()
	go func() {
		defer close(c.done)
		_ = c.cmd.Wait()
		c.code = c.cmd.ProcessState.ExitCode()
		out.Close()
	}()
	if !in.Background {
		<-c.done
		data, _ := os.ReadFile(c.log)
		for line := range bytes.Lines(data) {
			send(map[string]any{"type": "stdout", "text": strings.TrimRight(string(line), "\n")})
		}
	}
	send(map[string]any{"type": "execution_complete", "execution_time": 1})
}

func (b *hosted) find(id string) *hostedCommand {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.commands[id]
}

func (b *hosted) status(s *server, w http.ResponseWriter, id string) {
	c := b.find(id)
	if c == nil {
		s.refuse(w, http.StatusNotFound, "INVALID_REQUEST_BODY", "no command "+id)
		return
	}
	st := commandStatus{Running: true}
	select {
	case <-c.done:
		st = commandStatus{ExitCode: &c.code, Error: fmt.Sprint("exit status ", c.code)}
	default:
	}
	s.answer(w, http.StatusOK, st)
}

func (b *hosted) logs(s *server, w http.ResponseWriter, r *http.Request, id string) {
	c := b.find(id)
	if c == nil {
		s.refuse(w, http.StatusBadRequest, "INVALID_REQUEST_BODY", "no command "+id)
		return
	}
	data, err := os.ReadFile(c.log)
	if err != nil {
		s.refuse(w, http.StatusBadRequest, "INVALID_REQUEST_BODY", err.Error())
		return
	}
	at, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	w.Header().Set("EXECD-COMMANDS-TAIL-CURSOR", strconv.Itoa(len(data)))
	_, _ = w.Write(data[min(at, len(data)):])
}

// end kills the processes of the sandbox, as the end of its container would.
func (b *hosted) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.commands {
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
		<-c.done
	}
}

package docker

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// answers are an engine's answers by path without the API's version. Other paths are
// answered like a working engine.
type answers map[string]func(w http.ResponseWriter, r *http.Request)

func says(code int, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		io.WriteString(w, body) // the test checks the client
	}
}

func ping(version string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("API-Version", version)
		io.WriteString(w, "OK") // the test checks the client
	}
}

// upTo139 answers as an engine without a newer API.
func upTo139(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/v1.39/") {
		says(200, `{"OSType":"linux"}`)(w, r)
		return
	}
	says(400, `{"message":"client version is too new. Maximum supported API version is 1.39"}`)(w, r)
}

func hangs(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// serve answers as an engine does, on a socket.
func (a answers) serve(t *testing.T) (host string) {
	t.Helper()
	works := answers{
		"/_ping":                     ping("1.51"),
		"/info":                      says(200, `{"OSType":"linux","ServerVersion":"28.0"}`),
		"/images/" + there + "/json": says(200, `{"Id":"sha256:1"}`),
		"/containers/create":         says(201, `{"Id":"1"}`),
		"/containers/1/start":        says(204, ""),
		"/containers/1":              says(204, ""),
	}
	return listen(t, func(l net.Listener) error {
		return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			path := r.URL.Path
			if strings.HasPrefix(path, "/v1.") {
				path = path[strings.Index(path[1:], "/")+1:]
			}
			if h := a[path]; h != nil {
				h(w, r)
			} else if h := works[path]; h != nil {
				h(w, r)
			} else {
				says(404, `{"message":"No such thing: `+path+`"}`)(w, r)
			}
		}))
	})
}

// listen serves a socket until the test ends.
func listen(t *testing.T, serve func(net.Listener) error) (host string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "engine") // short, and accessible to another user
	must.Do(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err == nil {
		err = os.Chmod(socket, 0o600)
	}
	must.Do(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = serve(l) // it ends with the listener
	}()
	t.Cleanup(func() { l.Close(); <-ended })
	return "unix://" + socket
}

const (
	there = "there"
	// strangerHost is an engine's address for a process of this test under another user.
	strangerHost = "RATH_TEST_STRANGER"
)

// TestTroubles: with a misbehaving engine, calls return an error with the engine, the cause
// and a remedy, within a bounded time.
func TestTroubles(t *testing.T) {
	Reexec() // no daemon is started here
	if host := os.Getenv(strangerHost); host != "" {
		b := newDriver(&Options{State: os.Getenv("RATH_TEST_STATE"), Host: host, Image: there})
		_, err := b.Probe(t.Context())
		fmt.Println(err)
		return
	}
	t.Setenv("DOCKER_API_VERSION", "")
	nowhere := filepath.Join(t.TempDir(), "none")
	closed := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	must.Do(t, closed.Close())
	garbage := func(l net.Listener) error {
		for {
			c, err := l.Accept()
			if err != nil {
				return err
			}
			c.Read(make([]byte, 4<<10)) // the test checks the client
			io.WriteString(c, "220 mail.example.org\r\n")
			c.Close()
		}
	}
	probe := func(ctx context.Context, b *driver) error {
		_, err := b.Probe(ctx)
		return err
	}
	start := func(ctx context.Context, b *driver) error {
		if err := b.reach(); err != nil {
			return err
		}
		_, err := b.prepare(ctx, kind{image: "sha256:1"})
		return err
	}
	tar := filepath.Join(t.TempDir(), "tar")
	must.Do(t, os.WriteFile(tar, []byte("no tar"), 0o600))
	for name, tc := range map[string]struct {
		host string // "" is an engine with answers
		a    answers
		env  string // DOCKER_API_VERSION
		o    Options
		do   func(context.Context, *driver) error
		want []string
	}{
		"no socket":          {host: "unix://" + nowhere, do: probe, want: []string{nowhere, "start an engine there", "DOCKER_HOST"}},
		"refused":            {host: "tcp://" + closed.Addr().String(), do: probe, want: []string{closed.Addr().String(), "start an engine there", "DOCKER_HOST"}},
		"no address":         {host: "here", do: probe, want: []string{"the engine's address", "here", "write it as unix:///"}},
		"old API":            {a: answers{"/_ping": ping("1.39"), "/info": upTo139}, do: probe, want: []string{"1.39", "use Docker 19.03"}},
		"old API is asked":   {env: "1.30", do: probe, want: []string{oldestAPI, "1.30", "unset DOCKER_API_VERSION"}},
		"new API is asked":   {env: "1.99", a: answers{"/info": says(400, `{"message":"client version 1.99 is too new. Maximum supported API version is 1.51"}`)}, do: probe, want: []string{"too new", "1.51", "unset DOCKER_API_VERSION"}},
		"client is too old":  {a: answers{"/info": says(400, `{"message":"client version 1.51 is too old. Minimum supported API version is 1.60"}`)}, do: probe, want: []string{"too old", "1.60", "supported by this client"}},
		"Windows containers": {a: answers{"/info": says(200, `{"OSType":"windows"}`)}, do: probe, want: []string{"windows", "must run Linux containers"}},
		"users remapped":     {a: answers{"/info": says(200, `{"OSType":"linux","SecurityOptions":["name=userns"]}`)}, do: probe, want: []string{"remapped: true", "without user namespaces"}},
		"no such runtime":    {o: Options{Runtime: "runsc"}, a: answers{"/info": says(200, `{"OSType":"linux","Runtimes":{"runc":{}}}`)}, do: probe, want: []string{`no runtime "runsc"`, "runc", "name one of those"}},
		"no image":           {o: Options{Image: "gone"}, do: probe, want: []string{"no image gone", "pull, build or import"}},
		"no file of image":   {o: Options{Image: "gone", ImageTar: nowhere}, do: probe, want: []string{"image gone", nowhere, "name an existing file"}},
		"import forbidden":   {o: Options{Image: "gone", ImageTar: tar}, a: answers{"/images/create": says(403, `{"message":"authorization denied by plugin p"}`)}, do: probe, want: []string{"image gone", tar, "denied by plugin p", "plugin allow it"}},
		"import fails":       {o: Options{Image: "gone", ImageTar: tar}, a: answers{"/images/create": says(200, `{"error":"no space left on device"}`)}, do: probe, want: []string{"image gone", tar, "no space left", "log"}},
		"looking forbidden":  {a: answers{"/images/" + there + "/json": says(403, `{"message":"authorization denied by plugin p"}`)}, do: probe, want: []string{"image there", "denied by plugin p", "plugin allow it"}},
		"image goes":         {a: answers{"/containers/create": says(404, `{"message":"No such image: sha256:1"}`)}, do: start, want: []string{"sha256:1", "No such image", "pull, build or import"}},
		"create forbidden":   {a: answers{"/containers/create": says(403, `{"message":"authorization denied by plugin p"}`)}, do: start, want: []string{"create a container", "denied by plugin p", "plugin allow it"}},
		"start fails":        {a: answers{"/containers/1/start": says(500, `{"message":"OCI runtime create failed"}`)}, do: start, want: []string{"start a container", "OCI runtime create failed", "log"}},
		"hangs first":        {a: answers{"/_ping": hangs, "/info": hangs}, do: probe, want: []string{"does not answer in time", "restart it"}},
		"hangs later":        {a: answers{"/images/" + there + "/json": hangs}, do: probe, want: []string{"image there", "does not answer in time"}},
		"hangs at create":    {a: answers{"/containers/create": hangs}, do: start, want: []string{"create a container", "does not answer in time"}},
		"hangs at start":     {a: answers{"/containers/1/start": hangs, "/containers/1": hangs}, do: start, want: []string{"start a container", "remove the container", "does not answer in time"}},
		"not HTTP":           {host: listen(t, garbage), do: probe, want: []string{"unix://", "malformed HTTP", "DOCKER_HOST"}},
		"a web site":         {a: answers{"/_ping": says(200, "<html>"), "/info": says(200, "<html>")}, do: probe, want: []string{"invalid character", "start an engine there"}},
		"no engine":          {a: answers{"/info": says(200, "{}")}, do: probe, want: []string{"not from an engine", "start an engine there"}},
		"no number of image": {a: answers{"/images/" + there + "/json": says(200, "{}")}, do: probe, want: []string{"image there", "not from an engine"}},
		"no number":          {a: answers{"/containers/create": says(201, "{}")}, do: start, want: []string{"create a container", "not from an engine"}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.env == "" {
				t.Parallel() // after those of the environment
			} else {
				t.Setenv("DOCKER_API_VERSION", tc.env)
			}
			o := tc.o
			o.State, o.Host = t.TempDir(), tc.host
			if o.Image == "" {
				o.Image = there
			}
			if o.Host == "" {
				o.Host = tc.a.serve(t)
			}
			b := newDriver(&o)
			if strings.HasPrefix(name, "hangs") {
				b.patience = time.Second // the requests before do not take that long
			}
			var err error
			ended := make(chan error, 1)
			go func() { ended <- tc.do(t.Context(), b) }()
			select {
			case err = <-ended:
			case <-time.After(patience / 2): // far above four times its patience
				t.Fatal("it does not end")
			}
			for _, w := range tc.want {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("%v, want %q in it", err, w)
				}
			}
			t.Log(err)
			if left, err := filepath.Glob(filepath.Join(o.State, "box-*")); err != nil || len(left) > 0 && !strings.HasPrefix(name, "hangs at") {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}

// TestForeignSocket: an engine whose socket is not writable for this user.
func TestForeignSocket(t *testing.T) {
	host := answers{}.serve(t)
	state := filepath.Join(filepath.Dir(strings.TrimPrefix(host, "unix://")), "state")
	must.Do(t, os.Mkdir(state, 0o700))
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestTroubles$")
	cmd.Env = append(os.Environ(), strangerHost+"="+host, "RATH_TEST_STATE="+state)
	cmd.Dir = "/"
	if os.Geteuid() == 0 {
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		must.Do(t, os.Chown(state, nobody, nobody))
	} else if err := os.Chmod(strings.TrimPrefix(host, "unix://"), 0); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, w := range []string{host, "permission denied", "the group that owns it"} {
		if !strings.Contains(string(out), w) {
			t.Errorf("%s, want %q in it", out, w)
		}
	}
}

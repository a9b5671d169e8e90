package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/sandbox/execd"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/scripted"
)

// fakeEngine is an engine whose containers are daemons of this process, whose commands a
// scripted backend runs. A fault replaces an answer. The tests with a real engine check the
// restrictions of a container; this engine serves to inject failures.
type fakeEngine struct {
	t     *testing.T
	info  string               // its description of itself
	inner *scripted.Backend    // of the commands
	begin func(*fakeContainer) // changes a started container, unless it is nil

	mu         sync.Mutex
	next       int
	containers map[string]*fakeContainer // by id
	faults     []fault
	keeps      bool // containers that have ended are not removed
	made       int
	done       sync.WaitGroup
}

// fakeContainer is a container of the engine.
type fakeContainer struct {
	ID, Name string
	Labels   map[string]string
	Created  int64

	image, socket, workspace string
	daemon                   net.Listener // nil until it was started
	ended                    bool
}

// fault is an engine's answer to a request in place of the normal one.
type fault struct {
	at      string // a method and a path, in which ID stands for a container's id
	code    int    // of the answer; 0 breaks the connection
	message string
	carried bool // the engine carries out the request before it answers so
	after   int  // the number of requests answered normally before
	times   int  // 0 is unlimited
	hang    bool // the engine sends no answer until the client disconnects
}

// aboutEngine describes an engine that enforces all limits.
const aboutEngine = `{"OSType":"linux","ServerVersion":"28.5","DefaultRuntime":"runc","Runtimes":{"runc":{},"runsc":{}},"MemoryLimit":true,"SwapLimit":true,"CpuCfsQuota":true,"PidsLimit":true,"SecurityOptions":["name=seccomp,profile=builtin"]}`

// heldTo are the capabilities of the daemon in a container.
var heldTo = sandbox.Capabilities{
	Isolation: sandbox.IsolationKernel, Detail: "Landlock of the test", Networks: []string{string(sandbox.NetworkNone), sandbox.NetworkList},
	WholeTree: true, Services: true, Limits: []string{sandbox.LimitDisk, sandbox.LimitPIDs},
}

// start starts an engine, and returns a backend for it.
func (e *fakeEngine) start(t *testing.T, commands map[string]func(*fakeEngine, *fakeContainer), faults ...scripted.Fault) *driver {
	t.Helper()
	Reexec() // it starts no daemon
	e.t, e.containers = t, make(map[string]*fakeContainer)
	if e.info == "" {
		e.info = aboutEngine
	}
	e.inner = scripted.New(&scripted.Options{Claims: &heldTo, Commands: e.troubles(commands), Faults: faults})
	t.Cleanup(func() {
		e.mu.Lock()
		for _, c := range e.containers {
			c.kill()
		}
		e.mu.Unlock()
		e.done.Wait()
		if _, open := e.inner.Opened(); open > 0 {
			t.Errorf("%d sandboxes are open in containers that are gone", open)
		}
	})
	state := must.Get(os.MkdirTemp("", "state"))(t) // short, for the sockets
	t.Cleanup(func() { os.RemoveAll(state) })
	host := listen(t, func(l net.Listener) error { return http.Serve(l, http.HandlerFunc(e.serve)) })
	b := newDriver(&Options{State: state, Host: host, Image: there})
	b.program = func() (*os.File, error) { return os.Open(os.DevNull) }
	return b
}

// troubles are programs that cause an event when a command of a container runs them.
func (e *fakeEngine) troubles(all map[string]func(*fakeEngine, *fakeContainer)) map[string]func(context.Context, *scripted.Call) int {
	out := make(map[string]func(context.Context, *scripted.Call) int)
	for name, f := range all {
		out[name] = func(ctx context.Context, _ *scripted.Call) int {
			e.mu.Lock()
			for _, c := range e.containers {
				f(e, c)
			}
			e.mu.Unlock()
			<-ctx.Done()
			return 1
		}
	}
	return out
}

func (e *fakeEngine) set(faults ...fault) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults = faults
}

// left returns the names of the existing containers, and the number created so far.
func (e *fakeEngine) left() (names []string, made int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.containers {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return names, e.made
}

func (e *fakeEngine) serve(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if strings.HasPrefix(path, "/v1.") {
		path = path[strings.Index(path[1:], "/")+1:]
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	at, id := r.Method+" "+path, ""
	for k, c := range e.containers {
		for _, called := range []string{k, c.Name} {
			if strings.HasPrefix(path+"/", "/containers/"+called+"/") {
				at, id = strings.Replace(at, called, "ID", 1), k
			}
		}
	}
	f, ok := e.faulty(at)
	if !ok {
		e.carryOut(w, r, at, id)
		return
	}
	if f.carried {
		e.carryOut(httptest.NewRecorder(), r, at, id)
	}
	if f.hang {
		e.mu.Unlock()
		hangs(w, r)
		e.mu.Lock()
		return
	}
	if f.code != 0 {
		says(f.code, fmt.Sprintf(`{"message":%q}`, f.message))(w, r)
		return
	}
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		e.t.Error(err)
		return
	}
	conn.Close()
}

// faulty returns the fault for a request.
func (e *fakeEngine) faulty(at string) (fault, bool) {
	for i := range e.faults {
		f := &e.faults[i]
		if f.at != at || f.times < 0 {
			continue
		}
		if f.after > 0 {
			f.after--
			continue
		}
		if f.times == 1 {
			f.times = -1
		} else if f.times > 1 {
			f.times--
		}
		return *f, true
	}
	return fault{}, false
}

func (e *fakeEngine) carryOut(w http.ResponseWriter, r *http.Request, at, id string) {
	none := says(404, `{"message":"No such container"}`)
	switch at {
	case "HEAD /_ping", "GET /_ping":
		ping("1.51")(w, r)
	case "GET /info":
		says(200, e.info)(w, r)
	case "GET /images/" + there + "/json":
		says(200, `{"Id":"sha256:1"}`)(w, r)
	case "POST /containers/create":
		e.create(w, r)
	case "POST /containers/ID/start":
		e.run(e.containers[id])
		w.WriteHeader(204)
	case "POST /containers/ID/rename":
		e.containers[id].Name = r.URL.Query().Get("name")
		w.WriteHeader(204)
	case "GET /containers/ID/json":
		says(200, fmt.Sprintf(`{"State":{"Running":%t}}`, !e.containers[id].ended))(w, r)
	case "DELETE /containers/ID":
		e.remove(id)
		w.WriteHeader(204)
	case "POST /containers/ID/wait":
		e.remove(id)
		says(200, `{"StatusCode":0}`)(w, r)
	case "GET /containers/json":
		var filters struct{ Label map[string]bool }
		if err := json.Unmarshal([]byte(r.URL.Query().Get("filters")), &filters); err != nil || r.URL.Query().Get("all") != "1" {
			says(400, `{"message":"invalid filter"}`)(w, r)
			return
		}
		all := []object{}
		for _, id := range slices.Sorted(maps.Keys(e.containers)) {
			c := e.containers[id]
			names := []string{"/" + c.Name}
			if c.Name == "" {
				names = nil
			}
			for label := range filters.Label {
				if _, ok := c.Labels[label]; ok {
					all = append(all, object{"Id": c.ID, "Names": names, "Labels": c.Labels, "Created": c.Created})
				}
			}
		}
		data, err := json.Marshal(all)
		must.Report(e.t, err)
		says(200, string(data))(w, r)
	default:
		none(w, r)
	}
}

type object = map[string]any

func (e *fakeEngine) create(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Image      string
		Labels     map[string]string
		HostConfig struct {
			Mounts []struct{ Source, Target string }
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		says(400, `{"message":"invalid JSON"}`)(w, r)
		return
	}
	e.next++
	e.made++
	c := &fakeContainer{ID: fmt.Sprintf("c%d", e.next), Name: r.URL.Query().Get("name"), Labels: in.Labels, Created: time.Now().Unix(), image: in.Image}
	for _, m := range in.HostConfig.Mounts {
		switch m.Target {
		case execd.SocketDir:
			c.socket = m.Source
		case execd.Workspace:
			c.workspace = m.Source
		}
	}
	e.containers[c.ID] = c
	says(201, fmt.Sprintf(`{"Id":%q}`, c.ID))(w, r)
}

// run starts the daemon of a container.
func (e *fakeEngine) run(c *fakeContainer) {
	l, err := execd.ListenContainer(c.socket)
	if err != nil {
		e.t.Error(err)
		return
	}
	c.daemon = l
	e.done.Go(func() {
		_ = execd.StandIn(l, c.workspace, e.inner)
		e.mu.Lock()
		defer e.mu.Unlock()
		if c.ended = true; !e.keeps {
			delete(e.containers, c.ID) // as AutoRemove has it
		}
	})
	if e.begin != nil {
		e.begin(c)
	}
}

func (e *fakeEngine) remove(id string) {
	e.containers[id].kill()
	delete(e.containers, id)
}

// kill ends the processes of a container.
func (c *fakeContainer) kill() {
	if c.daemon != nil {
		_ = c.daemon.Close() // it may have ended
	}
}

// exhaust ends the container as its first process does when memory runs out.
func (c *fakeContainer) exhaust(t *testing.T) {
	must.Report(t, os.WriteFile(filepath.Join(c.socket, "out-of-memory"), nil, 0o600))
	c.kill()
}

// folders returns the folders of containers in the directory of a backend.
func (b *driver) folders(t *testing.T) []string {
	t.Helper()
	all := must.Get(filepath.Glob(filepath.Join(b.o.State, "box-*")))(t)
	return all
}

package kubernetes

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/sandbox/execd"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/scripted"
)

const (
	pinned       = "example.org/tools@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	anotherImage = "example.org/others@sha256:fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
)

// apiServer answers as the API server of a cluster does, for one namespace. It is also the
// cluster's one machine, on which a pod is a daemon of this process whose commands a
// scripted backend runs. A fault replaces an answer.
//
// The tests with a cluster check the validation of a real API server, the rights that it
// requires and the restrictions of pods; this server serves to inject failures.
type apiServer struct {
	t   *testing.T
	web *httptest.Server
	// claims enables the API of agent-sandbox. idle stops its controller.
	claims, idle bool
	// status, as JSON, is the status of a pod that the machine reports instead of running
	// it.
	status string
	// begin changes a started pod before its status is reported.
	begin func(p *fakePod)
	inner *scripted.Backend // of the commands
	// heard is called for each request, such as "get pods", with the number of such
	// requests.
	heard func(at string, times int)

	mu      sync.Mutex
	next    int
	objects map[string]object // by kind and name, such as pods/a
	pods    map[string]*fakePod
	faults  []fault
	asked   map[string]int
	done    sync.WaitGroup
}

// fakePod is a pod of the machine.
type fakePod struct {
	name, ip, image string
	daemon          net.Listener
	after           string // the status that the machine reports after a request for the pod, if not ""
}

// fault is the server's answer to a request in place of the normal one.
type fault struct {
	at      string // such as "create pods"
	code    int    // of the answer; 0 breaks the connection
	message string
	carried bool // the server carries out the request before it answers so
	after   int  // the number of requests answered normally before
	times   int  // 0 is unlimited
	again   int  // seconds, in Retry-After
	hang    bool // the server sends no answer until the client disconnects
}

// reasons are the API server's reasons by code.
var reasons = map[int]string{
	400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "AlreadyExists", 410: "Expired", 422: "Invalid",
	429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout",
}

// heldTo are the capabilities of the daemon in a pod.
var heldTo = sandbox.Capabilities{
	Isolation: sandbox.IsolationKernel, Detail: "Landlock of the test", Networks: []string{string(sandbox.NetworkNone), sandbox.NetworkList},
	WholeTree: true, Services: true, Limits: []string{sandbox.LimitDisk, sandbox.LimitPIDs},
}

func newAPIServer(t *testing.T, commands map[string]func(*apiServer, *fakePod)) *apiServer {
	t.Helper()
	s := &apiServer{t: t, objects: make(map[string]object), pods: make(map[string]*fakePod), asked: make(map[string]int)}
	s.inner = scripted.New(&scripted.Options{Claims: new(heldTo), Commands: s.troubles(commands)})
	s.web = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		s.web.Close()
		s.mu.Lock()
		for _, p := range s.pods {
			p.kill()
		}
		s.mu.Unlock()
		s.done.Wait()
		if _, open := s.inner.Opened(); open > 0 {
			t.Errorf("%d sandboxes are open in pods that are gone", open)
		}
	})
	return s
}

// kubeconfig writes a kubeconfig for the server.
func (s *apiServer) kubeconfig(t *testing.T) string { return kubeconfigOf(t, s.web.URL) }

func kubeconfigOf(t *testing.T, url string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	config := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c","namespace":"boxes"}}]}`, url)
	must.Do(t, os.WriteFile(file, []byte(config), 0o600))
	return file
}

// options returns the options of a backend of the cluster.
func (s *apiServer) options(t *testing.T) Options {
	t.Helper()
	Reexec() // it starts no daemon
	return Options{Kubeconfig: s.kubeconfig(t), Image: pinned, NodeImage: "example.org/node:v1", Holder: "node-0", Start: 20 * time.Second}
}

func (s *apiServer) set(faults ...fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = faults
}

// left returns the existing objects.
func (s *apiServer) left() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if path[0] == "apis" && len(path) == 3 {
		s.serveGroup(w, path[1])
		return
	}
	kind, name := path[len(path)-1], ""
	if i := slices.Index(path, "namespaces"); i >= 0 && len(path) > i+2 {
		if path[i+1] != "boxes" {
			s.t.Errorf("asked for namespace %s", path[i+1])
		}
		kind, name = path[i+2], strings.Join(path[i+3:], "/")
	}
	verb := map[string]string{"POST": "create", "GET": "get", "DELETE": "delete"}[r.Method]
	if verb == "get" && name == "" {
		verb = "list"
	}
	var in object
	if verb == "create" {
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			s.refuse(w, fault{code: 400, message: err.Error()})
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := verb + " " + kind
	if s.asked[at]++; s.heard != nil {
		s.heard(at, s.asked[at])
	}
	f, ok := s.faulty(at)
	if !ok {
		s.carryOut(w, r, verb, kind, name, in)
		return
	}
	if f.hang {
		s.mu.Unlock()
		<-r.Context().Done()
		s.mu.Lock()
	}
	if f.carried {
		s.carryOut(httptest.NewRecorder(), r, verb, kind, name, in)
	}
	s.refuse(w, f)
}

// faulty returns the fault for a request.
func (s *apiServer) faulty(at string) (fault, bool) {
	for i := range s.faults {
		f := &s.faults[i]
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

func (s *apiServer) refuse(w http.ResponseWriter, f fault) {
	if f.code == 0 {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			s.t.Error(err)
			return
		}
		conn.Close()
		return
	}
	if f.again > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(f.again))
	}
	s.answer(w, f.code, object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": f.message, "reason": reasons[f.code], "code": f.code})
}

func (s *apiServer) answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client may have disconnected
}

// serveGroup lists the resources of a group.
func (s *apiServer) serveGroup(w http.ResponseWriter, group string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f, ok := s.faulty("discover"); ok {
		s.refuse(w, f)
		return
	}
	if !s.claims {
		s.refuse(w, fault{code: 404, message: "the server could not find the requested resource"})
		return
	}
	var all []object
	for _, plural := range []string{claimPlural, poolPlural, templatePlural} {
		all = append(all, object{"name": plural})
	}
	s.answer(w, 200, object{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group + "/" + claimVersion, "resources": all})
}

func (s *apiServer) carryOut(w http.ResponseWriter, r *http.Request, verb, kind, name string, in object) {
	key := kind + "/" + name
	switch verb {
	case "create":
		s.create(w, r, kind, in)
	case "list":
		items, want := []object{}, r.URL.Query().Get("labelSelector")
		label, value, _ := strings.Cut(want, "=")
		for _, k := range slices.Sorted(maps.Keys(s.objects)) {
			labels, _ := s.objects[k]["metadata"].(object)["labels"].(object)
			if strings.HasPrefix(k, kind+"/") && (want == "" || labels[label] == value) {
				items = append(items, s.objects[k])
			}
		}
		s.answer(w, 200, object{"kind": "List", "apiVersion": "v1", "metadata": object{}, "items": items})
	case "get":
		if s.objects[key] == nil {
			s.refuse(w, fault{code: 404, message: fmt.Sprintf("%s %q not found", kind, name)})
			return
		}
		s.answer(w, 200, s.objects[key])
		if p := s.pods[name]; p != nil && p.after != "" {
			s.say(key, p.after)
		}
	case "delete":
		if s.objects[key] == nil {
			s.refuse(w, fault{code: 404, message: fmt.Sprintf("%s %q not found", kind, name)})
			return
		}
		s.remove(kind, name)
		s.answer(w, 200, object{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	}
}

// remove removes an object and the objects that it owns.
func (s *apiServer) remove(kind, name string) {
	delete(s.objects, kind+"/"+name)
	if p := s.pods[name]; p != nil && (kind == "pods" || kind == claimPlural) {
		p.kill()
		delete(s.pods, name)
	}
	owned := []string{"secrets"}
	if kind == claimPlural {
		owned = append(owned, "pods", templatePlural, poolPlural)
	}
	for _, k := range owned {
		delete(s.objects, k+"/"+name)
	}
}

func (s *apiServer) create(w http.ResponseWriter, r *http.Request, kind string, in object) {
	if kind == "selfsubjectaccessreviews" {
		_, denied := s.faulty("deny")
		if _, silent := s.faulty("silent"); !silent {
			in["status"] = object{"allowed": !denied}
		}
		s.answer(w, 201, in)
		return
	}
	if r.URL.Query().Get("dryRun") != "" {
		s.answer(w, 201, in)
		return
	}
	meta := in["metadata"].(object)
	name := meta["name"].(string)
	s.add(kind, name, in)
	if kind == claimPlural && s.idle && s.status != "" {
		s.say(kind+"/"+name, s.status)
	}
	if kind == poolPlural && !s.idle {
		template := s.objects[templatePlural+"/"+name]["spec"].(object)["podTemplate"].(object)
		s.add("pods", name, object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name, "labels": meta["labels"]}, "spec": template["spec"]})
	}
	if pod, secret := s.objects["pods/"+name], s.objects["secrets/"+name]; kind == "secrets" && pod != nil && secret != nil {
		s.start(name, pod, secret)
	}
	s.answer(w, 201, in)
}

func (s *apiServer) add(kind, name string, o object) {
	s.next++
	meta := o["metadata"].(object)
	meta["uid"] = fmt.Sprint("uid-", s.next)
	meta["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	o["status"] = object{"phase": "Pending"}
	s.objects[kind+"/"+name] = o
}

// start runs a pod as the machine does.
func (s *apiServer) start(name string, pod, secret object) {
	if s.status != "" {
		s.say("pods/"+name, s.status)
		return
	}
	text, _ := secret["data"].(object)[secretKey].(string)
	keys, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		s.t.Error(err)
		return
	}
	containers := pod["spec"].(object)["containers"].([]any)
	p := &fakePod{name: name, image: containers[0].(object)["image"].(string)}
	s.listen(p, keys)
	if s.begin != nil {
		s.begin(p)
	}
	s.pods[name] = p
	s.say("pods/"+name, fmt.Sprintf(`{"phase":"Running","podIP":%q,"containerStatuses":[{"name":"sandbox","image":%q,"imageID":%q,"state":{"running":{}}}]}`, p.ip, p.image, p.image))
}

// listen starts the daemon of a pod in place of its current one.
func (s *apiServer) listen(p *fakePod, keys []byte) {
	if p.daemon != nil {
		p.kill()
	}
	for {
		ip := fmt.Sprintf("127.5.%d.%d", rand.IntN(250), 1+rand.IntN(250))
		l, err := execd.ListenPod(ip, keys)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			s.t.Error(err)
			return
		}
		p.ip, p.daemon = ip, l
		workspace := s.t.TempDir()
		s.done.Go(func() { _ = execd.StandIn(l, workspace, s.inner) }) // it ends with the pod
		return
	}
}

// say sets the status of an object.
func (s *apiServer) say(key, status string) {
	var v object
	if err := json.Unmarshal([]byte(status), &v); err != nil {
		s.t.Error(err)
		return
	}
	if o := s.objects[key]; o != nil {
		o["status"] = v
	}
}

// kill ends the processes of a pod.
func (p *fakePod) kill() { _ = p.daemon.Close() } // it may have ended

// troubles are programs that cause an event when a command of a pod runs them.
func (s *apiServer) troubles(all map[string]func(*apiServer, *fakePod)) map[string]func(ctx context.Context, c *scripted.Call) int {
	out := make(map[string]func(ctx context.Context, c *scripted.Call) int)
	for name, f := range all {
		out[name] = func(ctx context.Context, _ *scripted.Call) int {
			s.mu.Lock()
			for _, p := range s.pods {
				f(s, p)
			}
			s.mu.Unlock()
			<-ctx.Done()
			return 1
		}
	}
	return out
}

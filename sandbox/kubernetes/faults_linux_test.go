package kubernetes

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/sandbox/execd"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/scripted"
)

// Messages of API servers of Kubernetes 1.34.
const (
	noRole     = `pods is forbidden: User "system:serviceaccount:agents:default" cannot create resource "pods" in API group "" in the namespace "boxes"`
	noSecrets  = `secrets is forbidden: User "system:serviceaccount:agents:default" cannot create resource "secrets" in API group "" in the namespace "boxes"`
	noClaims   = `sandboxclaims.extensions.agents.x-k8s.io is forbidden: User "system:serviceaccount:agents:default" cannot create resource "sandboxclaims" in API group "extensions.agents.x-k8s.io" in the namespace "boxes"`
	noDelete   = `pods "x" is forbidden: User "system:serviceaccount:agents:default" cannot delete resource "pods" in API group "" in the namespace "boxes"`
	noQuota    = `pods "x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=4, limited: pods=4`
	needsLimit = `pods "x" is forbidden: failed quota: small: must specify limits.memory for: sandbox`
	tooOpen    = `pods "x" is forbidden: violates PodSecurity "restricted:latest": seccompProfile (pod or containers "istio-proxy" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")`
	noClass    = `pods "x" is forbidden: pod rejected: RuntimeClass "none" not found`
	noSpace    = `namespaces "boxes" not found`
	noWebhook  = `Internal error occurred: failed calling webhook "mutate.example.org": Post "https://mutate.example.svc:443/": dial tcp 10.0.0.7:443: connect: connection refused`
	etcdSlow   = `etcdserver: request timed out`
	busy       = `The server has received too many requests and has asked us to try again later.`
)

// says fails the test unless an error contains the words.
func says(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v\nwant %q in it", what, err, w)
		}
	}
}

// TestFaultsCheck: Check reports each obstacle to creating pods with its cause and a
// remedy, and creates no pod.
func TestFaultsCheck(t *testing.T) {
	t.Parallel()
	const review = "create selfsubjectaccessreviews"
	away := "check the kubeconfig, the node's service account, and the network policy for the API server"
	for name, tc := range map[string]struct {
		claims  bool
		faults  []fault
		options func(t *testing.T, o *Options)
		want    []string
	}{
		"no such mode":        {options: func(_ *testing.T, o *Options) { o.Mode = "warm" }, want: []string{`no such way to make pods: "warm"`, "RATH_SANDBOX_KUBERNETES_MODE is pod or claim"}},
		"no image":            {options: func(_ *testing.T, o *Options) { o.Image = "" }, want: []string{"name the image of sandboxes (RATH_SANDBOX_KUBERNETES_IMAGE)"}},
		"no image of nodes":   {options: func(_ *testing.T, o *Options) { o.NodeImage = "" }, want: []string{"the image of the node (RATH_SANDBOX_KUBERNETES_NODE_IMAGE)"}},
		"no cluster":          {options: func(_ *testing.T, o *Options) { o.Kubeconfig = "" }, want: []string{"the service account of this pod", "mount its token, or name a kubeconfig", away}},
		"no kubeconfig":       {options: func(t *testing.T, o *Options) { o.Kubeconfig = filepath.Join(t.TempDir(), "none") }, want: []string{"the kubeconfig", "none: no such file", away}},
		"kubeconfig is none":  {options: func(t *testing.T, o *Options) { o.Kubeconfig = garbled(t) }, want: []string{"the kubeconfig", away}},
		"nothing listens":     {options: func(t *testing.T, o *Options) { o.Kubeconfig = kubeconfigOf(t, "https://127.0.0.1:1") }, want: []string{"127.0.0.1:1", "connection refused", away}},
		"another authority":   {options: foreignServer, want: []string{"certificate signed by unknown authority", away}},
		"token has run out":   {faults: []fault{{at: review, code: 401, message: "Unauthorized"}}, want: []string{"ask for the right to create pods", "Unauthorized", away}},
		"no reviews":          {faults: []fault{{at: review, code: 403, message: "selfsubjectaccessreviews.authorization.k8s.io is forbidden"}}, want: []string{"ask for the right to create pods", "is forbidden", away}},
		"server hangs up":     {faults: []fault{{at: review}}, want: []string{"ask for the right to create pods", "EOF", away}},
		"discovery fails":     {faults: []fault{{at: "discover", code: 503, message: "apiserver is shutting down"}}, want: []string{"ask for /apis/extensions.agents.x-k8s.io/v1beta1", "currently unable to handle the request", away}},
		"no role":             {faults: []fault{{at: "deny"}}, want: []string{"namespace boxes does not let this account create pods, get pods, list pods, delete pods, create secrets;", "bind it to the role that the chart has for sandboxes"}},
		"no role for claims":  {claims: true, faults: []fault{{at: "deny", after: 5}}, want: []string{"does not let this account create sandboxclaims.extensions.agents.x-k8s.io", "create sandboxwarmpools.extensions.agents.x-k8s.io;", "bind it to the role"}},
		"review says nothing": {faults: []fault{{at: "silent"}}, want: []string{"the review has no status"}},
		"no claims":           {options: func(_ *testing.T, o *Options) { o.Mode = ModeClaim }, want: []string{"has no extensions.agents.x-k8s.io/v1beta1; install agent-sandbox with its extensions, or set the mode pod"}},
		"more is injected":    {faults: []fault{{at: "create pods", code: 403, message: tooOpen}}, want: []string{"namespace boxes accepts no pod of a sandbox", "istio-proxy", "check the further rules of the namespace"}},
		"no quota":            {faults: []fault{{at: "create pods", code: 403, message: noQuota}}, want: []string{"accepts no pod", "limited: pods=4; raise the quota of the namespace, or name limits that fit"}},
		"no such class":       {faults: []fault{{at: "create pods", code: 403, message: noClass}}, want: []string{"accepts no pod", `RuntimeClass "none" not found; make the runtime class, or name one that the cluster has`}},
		"no namespace":        {faults: []fault{{at: "create pods", code: 404, message: noSpace}}, want: []string{"accepts no pod", `namespaces "boxes" not found; create the namespace, or name an existing one`}},
		"webhook is away":     {faults: []fault{{at: "create pods", code: 500, message: noWebhook}}, want: []string{"accepts no pod", "failed calling webhook"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t, nil)
			s.claims = tc.claims
			s.set(tc.faults...)
			o := s.options(t)
			if tc.options != nil {
				tc.options(t, &o)
			}
			found, err := Check(t.Context(), o)
			says(t, found, err, append(tc.want, "kubernetes: ")...)
			if left := s.left(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
	for _, claims := range []bool{false, true} {
		s := newAPIServer(t, nil)
		s.claims = claims
		found, err := Check(t.Context(), s.options(t))
		want := map[bool]string{
			false: "namespace boxes grants all 5 rights and accepts a pod, made by pod, runtime class by default",
			true:  "namespace boxes grants all 11 rights and accepts a pod, made by claim, runtime class by default",
		}[claims]
		if err != nil || found != want {
			t.Errorf("claims %t: %q, %v; want %q", claims, found, err, want)
		}
		if left := s.left(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
	// The client gives up on a silent server when the caller's time is over.
	s := newAPIServer(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	s.set(fault{at: "create selfsubjectaccessreviews", hang: true})
	if _, err := Check(ctx, s.options(t)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a server that hangs: %v", err)
	}
}

// garbled returns an invalid kubeconfig.
func garbled(t *testing.T) string {
	file := filepath.Join(t.TempDir(), "config")
	must.Do(t, os.WriteFile(file, []byte("clusters: {"), 0o600))
	return file
}

// foreignServer makes the kubeconfig name a server with an unknown certificate.
func foreignServer(t *testing.T, o *Options) {
	web := httptest.NewUnstartedServer(nil)
	web.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	web.StartTLS()
	t.Cleanup(web.Close)
	o.Kubeconfig = kubeconfigOf(t, web.URL)
}

// TestFaultsStart: a pod that fails to start is an error with the pod's name, the cause and
// a remedy, as soon as the cause is known or else when the time is over. It leaves no
// objects.
func TestFaultsStart(t *testing.T) {
	t.Parallel()
	const (
		pulling   = `{"phase":"Pending","containerStatuses":[{"name":"sandbox","image":"example.org/tols:v1","state":{"waiting":{"reason":"ImagePullBackOff","message":"Back-off pulling image \"example.org/tols:v1\""}}}]}`
		full      = `{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/3 nodes are available: 3 Insufficient memory."}]}`
		uncopied  = `{"phase":"Pending","initContainerStatuses":[{"name":"program","image":"n","state":{"terminated":{"exitCode":1,"reason":"Error"}}}]}`
		evicted   = `{"phase":"Failed","reason":"Evicted","message":"The node was low on resource: memory."}`
		preparing = `{"phase":"Pending","containerStatuses":[{"name":"sandbox","image":"n","state":{"waiting":{"reason":"CreateContainerConfigError","message":"secret \"x\" not found"}}}]}`
	)
	soon := func(o *Options) { o.Start = time.Second }
	for name, tc := range map[string]struct {
		claims, idle bool
		faults       []fault
		status       string
		begin        func(s *apiServer, p *fakePod)
		options      func(o *Options)
		held         func(c *sandbox.Capabilities)
		inner        []scripted.Fault
		leave        string // the caller gives up at the third request of this kind
		is           error
		want         []string
		left         []string // kinds
	}{
		"no role":              {faults: []fault{{at: "create pods", code: 403, message: noRole}}, want: []string{"cannot create resource", "the node's service account needs the role that the chart has for sandboxes"}},
		"no quota":             {faults: []fault{{at: "create pods", code: 403, message: needsLimit}}, want: []string{"must specify limits.memory", "name limits that fit"}},
		"token has run out":    {faults: []fault{{at: "create pods", code: 401, message: "Unauthorized"}}, want: []string{"Unauthorized"}},
		"name is taken":        {faults: []fault{{at: "create pods", code: 409, message: `pods "x" already exists`}}, want: []string{"already exists"}},
		"field is unknown":     {faults: []fault{{at: "create pods", code: 400, message: `strict decoding error: unknown field "spec.enableServiceLinks"`}}, want: []string{"unknown field"}},
		"answer is lost":       {faults: []fault{{at: "create pods", carried: true}}, want: []string{"EOF"}},
		"answered too late":    {faults: []fault{{at: "create pods", code: 504, message: etcdSlow, carried: true}}, want: []string{etcdSlow}},
		"no secrets":           {faults: []fault{{at: "create secrets", code: 403, message: noSecrets}}, want: []string{"its secret", "needs the role that the chart has for sandboxes"}},
		"no secrets, no end":   {faults: []fault{{at: "create secrets", code: 403, message: noSecrets}, {at: "delete pods", code: 403, message: noDelete}}, want: []string{"its secret", "delete the pod rath-sandbox-", "cannot delete resource"}, left: []string{"pods"}},
		"cannot look":          {faults: []fault{{at: "get pods", code: 403, message: noRole}}, leave: "get pods", is: context.Canceled, want: []string{"it does not run in time", "is forbidden"}},
		"server goes":          {faults: []fault{{at: "get pods"}}, options: soon, is: context.DeadlineExceeded, want: []string{"it does not run in time: the API server gives no reason"}},
		"server says nonsense": {faults: []fault{{at: "get pods", code: 200, message: "<html>"}}, leave: "get pods", is: context.Canceled, want: []string{"it does not run in time"}},
		"no image":             {status: pulling, want: []string{"container sandbox with image example.org/tols:v1: ImagePullBackOff", "name an image that the cluster's machines can pull, or secrets to pull it with"}},
		"no machine has room":  {status: full, leave: "get pods", is: context.Canceled, want: []string{"it does not run in time: Unschedulable: 0/3 nodes", "give the cluster room, or sandboxes smaller limits"}},
		"program not copied":   {status: uncopied, want: []string{"container program ended with code 1 Error", "see its log"}},
		"evicted":              {status: evicted, want: []string{"it was evicted: The node was low on resource", "limits of memory and disk that the machines have room for"}},
		"secret does not come": {status: preparing, leave: "get pods", is: context.Canceled, want: []string{"it does not run in time", `secret "x" not found`}},
		"deleted by others":    {faults: []fault{{at: "get pods", code: 404, message: `pods "x" not found`}}, want: []string{"it was deleted, by another process or by its machine"}},
		"daemon is not there":  {begin: func(_ *apiServer, p *fakePod) { p.kill() }, options: soon, is: context.DeadlineExceeded, want: []string{"the daemon does not answer", "deadline exceeded"}},
		"ends at once":         {begin: func(s *apiServer, p *fakePod) { p.kill(); p.after = evicted }, want: []string{"the daemon does not answer", "it was evicted"}},
		"goes at once":         {begin: func(_ *apiServer, p *fakePod) { p.kill() }, faults: []fault{{at: "get pods", code: 404, message: `pods "x" not found`, after: 1}}, want: []string{"the daemon does not answer", "it was deleted"}},
		"daemon of another":    {begin: foreignDaemon, options: soon, want: []string{"the daemon does not answer"}},
		"cannot open":          {inner: []scripted.Fault{{Kind: scripted.OpenRefused}}, is: nil, want: []string{"scripted: open"}},
		"commands get lost":    {inner: []scripted.Fault{{Kind: scripted.LostAnswer}}, want: []string{"the daemon cannot start commands"}},
		"no Landlock": {held: func(c *sandbox.Capabilities) {
			c.Isolation, c.Detail = sandbox.IsolationProcess, "no Landlock (Linux 4.4)"
		}, is: sandbox.ErrUnsupported, want: []string{"commands could reach the daemon of their pod: no Landlock (Linux 4.4)", "a runtime class whose kernel has Landlock"}},
		"no digest": {options: func(o *Options) { o.Image = "tools:latest" }, is: sandbox.ErrUnsupported, want: []string{"the cluster reports no digest of the image tools:latest", "name it by digest"}},
		"no end":    {faults: []fault{{at: "delete pods", code: 500, message: etcdSlow}}, want: []string{"delete the pod rath-sandbox-", etcdSlow}, left: []string{"pods", "secrets"}},

		"no claims":        {claims: true, faults: []fault{{at: "create sandboxclaims", code: 403, message: noClaims}}, want: []string{"its claim", "needs the role"}},
		"no templates":     {claims: true, faults: []fault{{at: "create sandboxtemplates", code: 422, message: "SandboxTemplate is invalid"}}, want: []string{"its template", "is invalid"}},
		"no pools":         {claims: true, faults: []fault{{at: "create sandboxwarmpools", code: 403, message: "exceeded quota: small"}}, want: []string{"its pool", "raise the quota"}},
		"no controller":    {claims: true, idle: true, leave: "get sandboxclaims", is: context.Canceled, want: []string{"the claim waits without a condition", "check that the controller of agent-sandbox runs with its extensions, or set the mode pod"}},
		"claim is refused": {claims: true, idle: true, status: `{"conditions":[{"type":"Ready","status":"False","reason":"ReconcilerError","message":"no such pool"}]}`, leave: "get sandboxclaims", is: context.Canceled, want: []string{"the claim waits: ReconcilerError: no such pool"}},
		"claim goes":       {claims: true, idle: true, faults: []fault{{at: "get sandboxclaims", code: 404, message: "not found"}}, want: []string{"its claim was deleted, by another process or at its end"}},
		"claim is unseen":  {claims: true, idle: true, faults: []fault{{at: "get sandboxclaims", code: 403, message: noClaims}}, leave: "get sandboxclaims", is: context.Canceled, want: []string{"it does not run in time", "sandboxclaims.extensions.agents.x-k8s.io is forbidden"}},
		"claim stays":      {claims: true, faults: []fault{{at: "create secrets", code: 403, message: noSecrets}, {at: "delete sandboxclaims", code: 500, message: etcdSlow}}, want: []string{"its secret", "delete the pod", etcdSlow}, left: []string{"pods", "sandboxclaims", "sandboxtemplates", "sandboxwarmpools"}},
		"no discovery":     {claims: true, faults: []fault{{at: "discover", code: 403, message: "forbidden"}}, want: []string{"ask for /apis/extensions"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			held := heldTo
			if tc.held != nil {
				tc.held(&held)
			}
			s := newAPIServer(t, nil)
			s.inner = scripted.New(&scripted.Options{Claims: &held, Faults: tc.inner})
			s.claims, s.idle, s.status = tc.claims, tc.idle, tc.status
			if tc.begin != nil {
				s.begin = func(p *fakePod) { tc.begin(s, p) }
			}
			s.set(tc.faults...)
			o := s.options(t)
			if tc.options != nil {
				tc.options(&o)
			}
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			s.heard = func(at string, times int) {
				if at == tc.leave && times == 3 {
					leave()
				}
			}
			began := time.Now()
			_, err := New(o).Probe(ctx)
			says(t, "Probe", err, append(tc.want, "kubernetes: ")...)
			if tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("%v, want %v", err, tc.is)
			}
			if took := time.Since(began); took > o.Start+removePatience/2 {
				t.Errorf("it took %s", took)
			}
			kinds := []string{}
			for _, k := range s.left() {
				kind, _, _ := strings.Cut(k, "/")
				kinds = append(kinds, kind)
			}
			if !slices.Equal(kinds, append([]string{}, tc.left...)) {
				t.Errorf("left: %v, want %v", kinds, tc.left)
			}
		})
	}
}

// foreignDaemon makes a daemon with other keys listen in place of a pod's.
func foreignDaemon(s *apiServer, p *fakePod) {
	others, err := execd.NewKeys()
	if err != nil {
		s.t.Error(err)
		return
	}
	s.listen(p, others.Daemon)
}

// TestFaultsPass: temporary failures are waited out.
func TestFaultsPass(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string][]fault{
		"server restarts":  {{at: "get pods", times: 3}},
		"server is behind": {{at: "get pods", code: 500, message: etcdSlow, times: 3}},
		"server is busy":   {{at: "create pods", code: 429, message: busy, again: 1, times: 1}},
		"already deleted":  {{at: "delete pods", code: 404, message: `pods "x" not found`, carried: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newAPIServer(t, nil)
			s.set(faults...)
			b := New(s.options(t))
			c, err := b.Probe(t.Context())
			if err != nil || c.Isolation != sandbox.IsolationContainer || !strings.Contains(c.Detail, "pods of namespace boxes, made by pod, runtime class by default, Landlock of the test") {
				t.Errorf("%+v, %v", c, err)
			}
			if left := s.left(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// TestFaultsCommand: events in a pod while a command runs in it.
func TestFaultsCommand(t *testing.T) {
	t.Parallel()
	say := func(status string) func(s *apiServer, p *fakePod) {
		return func(s *apiServer, p *fakePod) {
			s.say("pods/"+p.name, status)
			p.kill()
		}
	}
	const (
		oom     = `{"phase":"Failed","containerStatuses":[{"name":"sandbox","image":"n","state":{"terminated":{"exitCode":137,"reason":"OOMKilled"}}}]}`
		evicted = `{"phase":"Failed","reason":"Evicted","message":"The node was low on resource: ephemeral-storage."}`
		crashed = `{"phase":"Failed","containerStatuses":[{"name":"sandbox","image":"n","state":{"terminated":{"exitCode":1,"reason":"Error"}}}]}`
	)
	commands := map[string]func(*apiServer, *fakePod){
		"evict": say(evicted), "crash": say(crashed), "exhaust": say(oom),
		"delete": func(s *apiServer, p *fakePod) { s.remove("pods", p.name) },
		"cut":    func(_ *apiServer, p *fakePod) { p.kill() },
		"prevent": func(s *apiServer, p *fakePod) {
			say(oom)(s, p)
			s.faults = []fault{{at: "create pods", code: 403, message: noQuota}}
		},
		"cling": func(s *apiServer, p *fakePod) {
			say(oom)(s, p)
			s.faults = []fault{{at: "delete pods", code: 500, message: etcdSlow, times: 1}}
		},
	}
	for name, tc := range map[string]struct {
		command string
		want    []string // "" for a command that ran out of memory
		next    []string // of the command after it; none if it runs
	}{
		"evicted":       {command: "evict", want: []string{"it was evicted: The node was low on resource: ephemeral-storage.", "limits of memory and disk"}, next: []string{"it was evicted"}},
		"crashed":       {command: "crash", want: []string{"container sandbox ended with code 1 Error", "see its log"}, next: []string{"code 1"}},
		"deleted":       {command: "delete", want: []string{"it was deleted"}, next: []string{"it was deleted"}},
		"cut off":       {command: "cut", want: []string{"pod rath-sandbox-", "of namespace boxes: "}, next: []string{"of namespace boxes: "}},
		"out of memory": {command: "exhaust"},
		"no other pod":  {command: "prevent", next: []string{"its memory ran out, and it cannot be opened again", "limited: pods=4"}},
		"pod is kept":   {command: "cling", want: []string{"delete the pod", etcdSlow}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newAPIServer(t, commands)
			dir := t.TempDir()
			must.Do(t, os.WriteFile(filepath.Join(dir, "before"), []byte("kept\n"), 0o644))
			x, err := New(s.options(t)).Open(t.Context(), sandbox.Spec{Dir: dir, Owner: "acme/s1", Epoch: 1})
			must.Do(t, err)
			e, err := x.Exec(t.Context(), sandbox.Cmd{Argv: []string{tc.command}})
			if tc.want == nil {
				if err != nil || e.Ended != sandbox.OutOfMem || !strings.Contains(string(e.Stderr.Bytes()), "the sandbox ended with it; the files are as they were before this command") {
					t.Errorf("%+v, %v", e, err)
				}
			} else if says(t, "the command", err, append(tc.want, "kubernetes: ")...); !errors.Is(err, sandbox.ErrLost) {
				t.Errorf("%v, want %v", err, sandbox.ErrLost)
			}
			if tc.command != "cut" { // the cluster would be queried for 3 s again
				e, err = x.Exec(t.Context(), sandbox.Cmd{Argv: []string{"cat", "before"}})
			}
			if tc.next == nil {
				if err != nil || string(e.Stdout.Bytes()) != "kept\n" {
					t.Errorf("the next command: %+v, %v", e, err)
				}
			} else if says(t, "the next command", err, tc.next...); !errors.Is(err, sandbox.ErrLost) {
				t.Errorf("the next command: %v, want %v", err, sandbox.ErrLost)
			}
			s.set()
			must.Report(t, x.Close())
			if _, err := x.Exec(t.Context(), sandbox.Cmd{Argv: []string{"true"}}); !errors.Is(err, sandbox.ErrClosed) {
				t.Errorf("a closed sandbox: %v", err)
			}
			left := s.left()
			if tc.command == "cling" { // left for Sweep
				if len(left) != 2 {
					t.Errorf("left: %v, want the pod that was not deleted and its secret", left)
				}
			} else if len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

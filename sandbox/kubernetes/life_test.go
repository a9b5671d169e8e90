//go:build cluster

package kubernetes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/rathcluster/rath/internal/sandbox/execd"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

func open(t *testing.T, b *driver, s sandbox.Spec) *execd.Box {
	t.Helper()
	if s.Dir == "" {
		s.Dir = t.TempDir()
	}
	sb := must.Get(b.Open(t.Context(), s))(t)
	t.Cleanup(func() { must.Report(t, sb.Close()) })
	return sb.(*execd.Box)
}

// podOf returns the name of the pod of a sandbox.
func podOf(s sandbox.Sandbox) string { return s.(*execd.Box).Place().(*instance).name }

func sh(t *testing.T, x *execd.Box, script string) sandbox.Exit {
	t.Helper()
	e := must.Get(x.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", script}, Timeout: 30 * time.Second}))(t)
	return e
}

// names returns the names of the remaining pods and secrets, and of their makers.
func names(t *testing.T, in *cluster) (all []string) {
	t.Helper()
	kinds := map[string]dynamic.ResourceInterface{"pod": in.pods, "secret": in.secrets}
	if c, ok := in.maker.(claims); ok {
		kinds["claim"], kinds["pool"], kinds["template"] = c.claims, c.pools, c.templates
	}
	for kind, of := range kinds {
		there := must.Get(list(t.Context(), of, labelName+"="+nameValue))(t)
		for _, s := range there {
			all = append(all, kind+" "+s.Metadata.Name)
		}
	}
	return all
}

// inModes runs a test with pods that are created in each way.
func inModes(t *testing.T, test func(*testing.T, *cluster, *kubelet, *claimController, func(func(*Options)) *driver)) {
	_, k := newCluster(t)
	controller := startClaims(t)
	for _, mode := range []string{ModePod, ModeClaim} {
		in := must.Get(connect(t.Context(), os.Getenv("KUBECONFIG"), testNamespace, mode))(t)
		t.Run(mode, func(t *testing.T) {
			test(t, in, k, controller, func(change func(*Options)) *driver {
				return backend(t, func(o *Options) {
					o.Mode = mode
					if change != nil {
						change(o)
					}
				})
			})
		})
		until(t, "nothing is left", func() bool { return len(names(t, in)) == 0 })
	}
}

// holderDir has a process of the test hold a sandbox over a directory.
const (
	holderDir  = "RATH_TEST_HOLDER"
	holderMode = "RATH_TEST_HOLDER_MODE"
)

// hold opens a sandbox, prints the name of its pod, and runs a command that does not end.
func hold(dir string) error {
	b := newDriver(Options{Kubeconfig: os.Getenv("KUBECONFIG"), Namespace: testNamespace, Mode: os.Getenv(holderMode), Image: testDigest, NodeImage: nodeImage, Program: nodeProgram, Lease: time.Hour})
	sb, err := b.Open(context.Background(), sandbox.Spec{Dir: dir, Owner: "session", Epoch: 1})
	if err != nil {
		return err
	}
	fmt.Println(podOf(sb))
	_, err = sb.Exec(context.Background(), sandbox.Cmd{Argv: []string{"sh", "-c", "setsid sleep 1000 & echo began; sleep 1000"}, Timeout: time.Hour, Offload: os.Stdout})
	return err
}

// TestKilledHolder kills the process that holds a pod with -9 during a command: the pod
// ends by itself with all its processes, and another process removes it and its secret.
func TestKilledHolder(t *testing.T) { inModes(t, killedHolder) }

func killedHolder(t *testing.T, in *cluster, k *kubelet, _ *claimController, backend func(func(*Options)) *driver) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.Stderr = append(os.Environ(), holderDir+"="+t.TempDir(), holderMode+"="+in.name(), "KUBECONFIG="+asNode(t)), os.Stderr
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	said := bufio.NewScanner(out)
	var lines []string
	for len(lines) < 2 && said.Scan() {
		lines = append(lines, said.Text())
	}
	began := time.Now()
	must.Report(t, cmd.Process.Kill())
	cmd.Wait() // it was killed
	if len(lines) != 2 || lines[1] != "began" {
		t.Fatalf("the holder said %q", lines)
	}
	p := k.named(lines[0])
	select {
	case <-p.over:
		t.Logf("the pod ended %v after its holder", time.Since(began))
	case <-time.After(20 * time.Second):
		t.Fatal("the pod runs without its holder")
	}
	if left := processesOf(t, DefaultUser); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	b := backend(nil)
	until(t, "a sweep leaves nothing", func() bool {
		must.Get(b.Sweep(t.Context()))(t)
		return len(names(t, in)) == 0
	})
}

// processesOf returns the processes of a user.
func processesOf(t *testing.T, uid int) (all []string) {
	t.Helper()
	entries := must.Get(os.ReadDir("/proc"))(t)
	for _, e := range entries {
		text, err := os.ReadFile("/proc/" + e.Name() + "/status")
		if err == nil && strings.Contains(string(text), fmt.Sprintf("\nUid:\t%d\t", uid)) && !strings.Contains(string(text), "\nState:\tZ") {
			all = append(all, e.Name())
		}
	}
	return all
}

// TestMachine is the machine of the cluster for the test of another program, until its
// input ends. Then no objects of sandboxes may be left, once a node has swept.
func TestMachine(t *testing.T) {
	in, _ := newCluster(t)
	fmt.Println("the machine is up")
	must.Get(io.Copy(io.Discard, os.Stdin))(t)
	// A pod that never ran, because its holder was killed before, has expired by then.
	var left []string
	for end := time.Now().Add(2*DefaultStart + 2*time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if left = append(names(t, in), processesOf(t, DefaultUser)...); len(left) == 0 || time.Now().After(end) {
			break
		}
	}
	if len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestOwners: the pod of a lower epoch is removed when a pod of a higher epoch of the same
// owner is opened, and pods of other owners stay; Sweep finds pods that are left otherwise.
func TestOwners(t *testing.T) { inModes(t, owners) }

func owners(t *testing.T, in *cluster, _ *kubelet, _ *claimController, backend func(func(*Options)) *driver) {
	b := backend(nil)
	old := open(t, b, sandbox.Spec{Owner: "session", Epoch: 1})
	objects := len(names(t, in))
	other := open(t, b, sandbox.Spec{Owner: "another session", Epoch: 1})
	young := open(t, b, sandbox.Spec{Owner: "session", Epoch: 2})
	if _, err := old.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sleep", "10"}}); !errors.Is(err, sandbox.ErrLost) || !strings.Contains(err.Error(), podOf(old)) || !strings.Contains(err.Error(), "deleted") {
		t.Errorf("a command of the older epoch: %v", err)
	}
	sh(t, other, "true")
	if e := sh(t, young, "echo goes on"); string(e.Stdout.Bytes()) != "goes on\n" {
		t.Error(e)
	}
	until(t, "two pods are left", func() bool { return len(names(t, in)) == 2*objects })
	// A pod that is opened late, although its session has a newer one, is removed by a
	// sweep.
	late := open(t, b, sandbox.Spec{Owner: "session", Epoch: 1})
	if n, err := b.Sweep(t.Context()); err != nil || n != 1 {
		t.Errorf("a sweep removed %d pods, %v", n, err)
	}
	until(t, "the late one is gone", func() bool {
		_, err := in.pod(t.Context(), podOf(late))
		return errors.Is(err, errNotFound)
	})
	sh(t, young, "true")
}

// TestKeysStayHidden: no command finds the keys of its daemon, and the kernel hides them
// from other processes of the same user.
func TestKeysStayHidden(t *testing.T) {
	_, k := newCluster(t)
	x := open(t, backend(t, nil), sandbox.Spec{})
	e := sh(t, x, "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline; cat /proc/1/mem | head -c 1; ls -l /proc/1/fd; cat /run/rath/*; grep -r KEY /run 2>&1; exit 0")
	if text := string(e.Stdout.Bytes()); strings.Contains(text, "PRIVATE") || strings.Contains(text, "RATH_SANDBOX") {
		t.Errorf("a command finds %s", text)
	}
	pid := k.named(podOf(x)).main.Process.Pid
	fi := must.Get(os.Stat(fmt.Sprintf("/proc/%d/environ", pid)))(t)
	if uid := fi.Sys().(*syscall.Stat_t).Uid; uid != 0 {
		t.Errorf("the environment of the first process belongs to user %d", uid)
	}
}

// TestTroubles: an obstacle to running a pod is an error with the pod's name, the cause and
// a remedy, and leaves no objects.
func TestTroubles(t *testing.T) { inModes(t, troubles) }

func troubles(t *testing.T, in *cluster, k *kubelet, controller *claimController, backend func(func(*Options)) *driver) {
	b := backend(func(o *Options) { o.Start = 2 * time.Second })
	must.Get(b.Probe(t.Context()))(t)
	refused := func(what string, err error, words ...string) {
		t.Helper()
		for _, w := range append(words, "rath-sandbox-") {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v; want %q in it", what, err, w)
			}
		}
	}
	missing := strings.Replace(testDigest, "commands", "missing", 1)
	_, err := b.Open(t.Context(), sandbox.Spec{Dir: t.TempDir(), Image: missing})
	refused("no such image", err, "ImagePullBackOff", missing, "name an image")

	k.mu.Lock()
	k.hold = true
	k.mu.Unlock()
	_, err = b.Open(t.Context(), sandbox.Spec{Dir: t.TempDir()})
	refused("no room", err, "Insufficient memory", "give the cluster room")
	k.mu.Lock()
	k.hold = false
	k.mu.Unlock()

	if in.name() == ModeClaim {
		controller.set(true)
		_, err = b.Open(t.Context(), sandbox.Spec{Dir: t.TempDir()})
		refused("no controller", err, "the claim waits", "controller of agent-sandbox", "mode pod")
		controller.set(false)
	}

	x := open(t, b, sandbox.Spec{})
	p := k.named(podOf(x))
	p.evict("The node was low on resource: memory.")
	_, err = x.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sleep", "10"}})
	if refused("evicted", err, "evicted", "low on resource", "limits"); !errors.Is(err, sandbox.ErrLost) {
		t.Error("it is not told as lost")
	}
	must.Report(t, x.Close())

	// A context that ends at any moment leaves no objects.
	for wait := time.Duration(0); wait < 300*time.Millisecond; wait += 30 * time.Millisecond {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		sb, err := b.Open(ctx, sandbox.Spec{Dir: t.TempDir()})
		cancel()
		if err == nil {
			err = sb.Close()
		} else if errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
		if err != nil {
			t.Errorf("after %v: %v", wait, err)
		}
	}
	until(t, "nothing is left", func() bool { return len(names(t, in)) == 0 })
}

// TestMemoryOfPod: if the kernel ends a pod whose memory runs out, its command reports
// that, and the next one has the same files in another pod.
func TestMemoryOfPod(t *testing.T) {
	in, k := newCluster(t)
	k.all = true
	x := open(t, backend(t, nil), sandbox.Spec{Dir: t.TempDir(), Limits: sandbox.Limits{Memory: 64 << 20}})
	sh(t, x, "echo kept > kept")
	first := podOf(x)
	if e := sh(t, x, "echo gone > gone; head -c 600000000 /dev/zero | tail"); e.Ended != sandbox.OutOfMem || e.Code != 137 || !strings.Contains(string(e.Stderr.Bytes()), "memory of the sandbox ran out") {
		t.Errorf("a command without memory: %+v", e)
	}
	if e := sh(t, x, "ls; cat kept"); string(e.Stdout.Bytes()) != "kept\nkept\n" {
		t.Errorf("the next command: %+v", e)
	}
	if podOf(x) == first {
		t.Error("the pod that ended is in use")
	}
	must.Report(t, x.Close())
	until(t, "nothing is left", func() bool { return len(names(t, in)) == 0 })
}

// TestQuota: the error names a namespace's exhausted quota.
func TestQuota(t *testing.T) {
	const small = "small"
	client := newClient(t)
	quotas := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}).Namespace(small)
	makeNamespace(t, client, small)
	q := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": map[string]any{"name": "none"}, "spec": map[string]any{"hard": map[string]any{"pods": "0"}}}}
	must.Get(quotas.Create(t.Context(), q, metav1.CreateOptions{}))(t)
	until(t, "the quota counts", func() bool {
		u := must.Get(quotas.Get(t.Context(), "none", metav1.GetOptions{}))(t)
		_, ok, _ := unstructured.NestedString(u.Object, "status", "used", "pods")
		return ok
	})
	_, err := backend(t, func(o *Options) { o.Kubeconfig, o.Namespace = os.Getenv("KUBECONFIG"), small }).Probe(t.Context())
	if err == nil || !strings.Contains(err.Error(), "exceeded quota") || !strings.Contains(err.Error(), "raise the quota") {
		t.Errorf("a pod beyond the quota: %v", err)
	}
}

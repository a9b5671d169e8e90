//go:build cluster

package kubernetes

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// The images of the test.
const (
	nodeImage   = "example.org/node:test"
	nodeProgram = "/rath" // in it
	testImage   = "example.org/commands:latest"
	testDigest  = "example.org/commands@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// podSpec is the part of a pod that the test's kubelet reads.
type podSpec struct {
	Metadata struct {
		Name, UID, DeletionTimestamp string
		Annotations                  map[string]string
	}
	Spec struct {
		NodeName                   string
		InitContainers, Containers []containerDef
		Volumes                    []struct {
			Name     string
			EmptyDir *struct{ Medium, SizeLimit string }
		}
		SecurityContext struct{ RunAsUser int }
	}
	Status struct{ Phase string }
}

type containerDef struct {
	Name, Image string
	Command     []string
	Env         []struct {
		Name, Value string
		ValueFrom   *struct {
			FieldRef     *struct{ FieldPath string }
			SecretKeyRef *struct{ Name, Key string }
		}
	}
	VolumeMounts []struct {
		Name, MountPath, SubPath string
		ReadOnly                 bool
	}
	Resources struct{ Limits map[string]string }
}

// kubelet is the cluster's only machine.
type kubelet struct {
	t   *testing.T
	in  *cluster
	dir string

	reported map[string]string // the status of each pod, by UID

	mu   sync.Mutex
	last int
	pods map[string]*machinePod // by UID
	hold bool                   // binds no pod, as if no machine had room
	all  bool                   // ends all processes of a pod when its memory runs out
	done sync.WaitGroup
}

// machinePod is a started pod.
type machinePod struct {
	name, ip, dir string
	spec          podSpec
	mounted       []string
	groups        *groups

	mu      sync.Mutex
	main    *exec.Cmd // nil until it runs
	status  map[string]any
	stopped bool
	evicted string        // why
	over    chan struct{} // closed when all its processes have ended
}

// startKubelet joins the cluster and runs until the test ends.
func startKubelet(t *testing.T, in *cluster) *kubelet {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "pods"))(t)
	k := &kubelet{t: t, in: in, dir: dir, pods: map[string]*machinePod{}, reported: map[string]string{}}
	// The garbage collector deletes pods of a machine that does not exist.
	nodes := newClient(t).Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"})
	machine := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "machine"}}}
	if _, err := nodes.Create(t.Context(), machine, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	k.done.Go(func() {
		for ctx.Err() == nil {
			k.sync(ctx)
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		k.done.Wait()
		for _, p := range k.pods {
			p.stop()
			<-p.over
			must.Report(t, p.clean())
		}
		if t.Failed() {
			t.Logf("the logs of pods are in %s", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return k
}

func (k *kubelet) sync(ctx context.Context) {
	all, err := k.in.pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		if ctx.Err() == nil {
			k.t.Error(err)
		}
		return
	}
	there := map[string]bool{}
	for i := range all.Items {
		u := &all.Items[i]
		there[string(u.GetUID())] = true
		if err := k.syncPod(ctx, u); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			k.t.Errorf("pod %s: %v", u.GetName(), err)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for uid, p := range k.pods {
		if !there[uid] { // deleted by force
			p.stop()
			<-p.over
			must.Report(k.t, p.clean())
			delete(k.pods, uid)
		}
	}
}

func (k *kubelet) syncPod(ctx context.Context, u *unstructured.Unstructured) error {
	data, err := u.MarshalJSON()
	if err != nil {
		return err
	}
	var spec podSpec
	if err := json.Unmarshal(data, &spec); err != nil {
		return err
	}
	k.mu.Lock()
	p, hold := k.pods[spec.Metadata.UID], k.hold
	k.mu.Unlock()
	switch {
	case spec.Metadata.DeletionTimestamp != "":
		if p != nil {
			p.stop()
			select {
			case <-p.over:
			default:
				return nil
			}
		}
		return k.in.pods.Delete(ctx, spec.Metadata.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: new(types.UID(spec.Metadata.UID))}})
	case spec.Spec.NodeName == "" && hold:
		return k.report(ctx, u, map[string]any{"phase": "Pending", "conditions": []any{map[string]any{
			"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available: 1 Insufficient memory.",
		}}})
	case spec.Spec.NodeName == "":
		b := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Binding", "metadata": map[string]any{"name": spec.Metadata.Name}, "target": map[string]any{"kind": "Node", "name": "machine"},
		}}
		_, err := k.in.pods.Create(ctx, b, metav1.CreateOptions{}, "binding")
		return err
	case p == nil:
		return k.start(spec)
	}
	p.mu.Lock()
	status := p.status
	p.mu.Unlock()
	return k.report(ctx, u, status)
}

// report writes a status if it has changed.
func (k *kubelet) report(ctx context.Context, u *unstructured.Unstructured, status map[string]any) error {
	if status == nil {
		return nil
	}
	want, err := json.Marshal(status)
	if err != nil {
		return err
	}
	uid := string(u.GetUID())
	if k.reported[uid] == string(want) {
		return nil
	}
	u = u.DeepCopy()
	have, _, err := unstructured.NestedMap(u.Object, "status")
	if err != nil {
		return err
	}
	maps.Copy(have, status)
	u.Object["status"] = have
	data, err := u.MarshalJSON() // numbers as the client requires them
	if err != nil {
		return err
	}
	if err := u.UnmarshalJSON(data); err != nil {
		return err
	}
	if _, err := k.in.pods.UpdateStatus(ctx, u, metav1.UpdateOptions{}); err != nil {
		return err
	}
	k.reported[uid] = string(want)
	return nil
}

// start starts a pod: its volumes, then its containers, one after the other.
func (k *kubelet) start(spec podSpec) error {
	k.mu.Lock()
	k.last++
	n := k.last
	p := &machinePod{
		name: spec.Metadata.Name, ip: fmt.Sprintf("127.4.%d.%d", n/250, n%250+1), dir: filepath.Join(k.dir, strconv.Itoa(n)), spec: spec, over: make(chan struct{}),
	}
	k.pods[spec.Metadata.UID] = p
	k.mu.Unlock()
	for _, v := range spec.Spec.Volumes {
		at := filepath.Join(p.dir, "volumes", v.Name)
		if err := os.MkdirAll(at, 0o777); err != nil {
			return err
		}
		if v.EmptyDir.Medium == "Memory" {
			if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777,size="+v.EmptyDir.SizeLimit); err != nil {
				return err
			}
			p.mounted = append(p.mounted, at)
		} else if err := os.Chmod(at, 0o777); err != nil {
			return err
		}
	}
	limits := spec.Spec.Containers[0].Resources.Limits
	memory, _ := strconv.ParseInt(limits["memory"], 10, 64)
	cpu, err := milliCPU(limits["cpu"])
	if err != nil {
		return err
	}
	if p.groups, err = newGroups("rath-"+filepath.Base(k.dir)+"-"+strconv.Itoa(n), memory, cpu); err != nil {
		return err
	}
	go p.live(k)
	return nil
}

// milliCPU parses a number of processors in the API server's form.
func milliCPU(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	if m, ok := strings.CutSuffix(s, "m"); ok {
		return strconv.ParseInt(m, 10, 64)
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return 1000 * n, err
}

// live runs the containers of a pod.
func (p *machinePod) live(k *kubelet) {
	defer close(p.over)
	init, main := p.spec.Spec.InitContainers[0], p.spec.Spec.Containers[0]
	waiting := func(c containerDef, reason, message string) map[string]any {
		return map[string]any{"name": c.Name, "image": c.Image, "imageID": "", "ready": false, "restartCount": 0, "state": map[string]any{"waiting": map[string]any{"reason": reason, "message": message}}}
	}
	fail := func(c containerDef, reason, message string) {
		p.set(map[string]any{"phase": "Pending", "containerStatuses": []any{waiting(c, reason, message)}})
	}
	for _, c := range []containerDef{init, main} {
		if c.Image != nodeImage && c.Image != testImage && c.Image != testDigest {
			fail(c, "ImagePullBackOff", "Back-off pulling image: not found")
			return
		}
	}
	cmd, err := p.run(k, init, k.dir+"/"+p.name+".init.log", true)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		fail(init, "CreateContainerError", err.Error())
		return
	}
	// A secret may be created after its pod.
	for {
		cmd, err = p.run(k, main, k.dir+"/"+p.name+".log", false)
		if err == nil {
			break
		}
		fail(main, "CreateContainerConfigError", err.Error())
		p.mu.Lock()
		stopped := p.stopped
		p.mu.Unlock()
		if stopped {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	id := testDigest
	running := map[string]any{"name": main.Name, "image": main.Image, "imageID": id, "ready": true, "restartCount": 0, "state": map[string]any{"running": map[string]any{}}}
	p.set(map[string]any{"phase": "Running", "podIP": p.ip, "podIPs": []any{map[string]any{"ip": p.ip}}, "containerStatuses": []any{running}})
	ended := make(chan struct{})
	if k.all { // as version 2 of control groups does by memory.oom.group
		go func() {
			for !p.groups.killed() {
				select {
				case <-ended:
					return
				case <-time.After(time.Millisecond):
				}
			}
			_ = cmd.Process.Kill() // it may have ended
		}()
	}
	_ = cmd.Wait() // its status is read below
	close(ended)
	reason, code := "Error", cmd.ProcessState.ExitCode()
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	if p.groups.killed() { // earlier or now: runtimes do not distinguish
		reason = "OOMKilled"
	}
	phase := "Failed"
	if code == 0 {
		reason, phase = "Completed", "Succeeded"
	}
	done := map[string]any{"name": main.Name, "image": main.Image, "imageID": id, "ready": false, "restartCount": 0, "state": map[string]any{
		"terminated": map[string]any{"exitCode": code, "reason": reason},
	}}
	status := map[string]any{"phase": phase, "podIP": p.ip, "podIPs": []any{map[string]any{"ip": p.ip}}, "containerStatuses": []any{done}}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.evicted != "" {
		status["phase"], status["reason"], status["message"] = "Failed", "Evicted", p.evicted
		delete(status, "containerStatuses")
	}
	p.status = status
}

func (p *machinePod) set(status map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = status
}

// run starts a container.
func (p *machinePod) run(k *kubelet, c containerDef, log string, program bool) (*exec.Cmd, error) {
	root, err := os.MkdirTemp(p.dir, "root")
	if err != nil {
		return nil, err
	}
	spec := containerSpec{Root: root, Argv: c.Command, UID: p.spec.Spec.SecurityContext.RunAsUser, Groups: p.groups.inside, Env: []string{"PATH=/usr/bin:/bin", "HOSTNAME=" + p.name}}
	if program {
		// A node of this machine names its own program.
		if spec.Program = c.Command[0]; spec.Program == nodeProgram {
			spec.Program, err = os.Executable()
		}
		if err != nil {
			return nil, err
		}
	}
	for _, e := range c.Env {
		value := e.Value
		if from := e.ValueFrom; from != nil && from.FieldRef != nil {
			value = p.ip
		} else if from != nil {
			s, err := k.in.secrets.Get(context.Background(), from.SecretKeyRef.Name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			text, _, _ := unstructured.NestedString(s.Object, "data", from.SecretKeyRef.Key)
			data, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				return nil, err
			}
			value = string(data)
		}
		spec.Env = append(spec.Env, e.Name+"="+value)
	}
	for _, m := range c.VolumeMounts {
		spec.Mounts = append(spec.Mounts, containerMount{filepath.Join(p.dir, "volumes", m.Name, m.SubPath), m.MountPath, m.ReadOnly})
	}
	cmd, err := spec.command()
	if err != nil {
		return nil, err
	}
	f, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd.Stdout, cmd.Stderr = f, f
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil, errors.New("it is being deleted")
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.main = cmd
	return cmd, nil
}

// stop ends the pod; over is closed when it has ended.
func (p *machinePod) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	if p.main != nil {
		_ = p.main.Process.Kill() // it may have ended
	}
}

// evict ends the pod as a machine without free resources does.
func (p *machinePod) evict(message string) {
	p.mu.Lock()
	p.evicted = message
	p.mu.Unlock()
	p.stop()
}

// named returns a pod of the machine.
func (k *kubelet) named(name string) *machinePod {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		if p.name == name {
			return p
		}
	}
	k.t.Fatalf("no pod %s", name)
	return nil
}

// clean removes the resources of the pod.
func (p *machinePod) clean() error {
	var errs []error
	for _, at := range p.mounted {
		errs = append(errs, unix.Unmount(at, unix.MNT_DETACH))
	}
	if p.groups != nil {
		errs = append(errs, p.groups.remove())
	}
	return errors.Join(append(errs, os.RemoveAll(filepath.Join(p.dir, "volumes")))...)
}

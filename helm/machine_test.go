//go:build cluster

package helm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// machine is the only machine of a cluster. It runs the first container of each pod as a
// process with the pod's command, arguments, environment and secrets, checks its readiness
// probe, and stops it like a kubelet. It provides no root file system and no isolation;
// .ci/image tests those. Pods have addresses of 127.1.0.0/16.
type machine struct {
	client kubernetes.Interface
	dir    string // a directory for each pod

	pods map[types.UID]*process
	last int // of the addresses
}

// process is a pod that was started.
type process struct {
	ip, dir string
	cmd     *exec.Cmd
	ended   chan struct{}
	stopped time.Time // when it was asked to
	grace   time.Duration
}

// newMachine joins the cluster, and works until the test ends.
func newMachine(t *testing.T, client kubernetes.Interface) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "pods") // sockets have short names
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{client: client, dir: dir, pods: map[types.UID]*process{}}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "machine"}}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			m.sync(ctx, t)
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		for _, p := range m.pods {
			_ = p.cmd.Process.Kill() // it may have ended
			<-p.ended
		}
		if err := client.CoreV1().Nodes().Delete(context.Background(), n.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the pods' logs are in %s", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return m
}

// sync brings processes and pods together once.
func (m *machine) sync(ctx context.Context, t *testing.T) {
	all, err := m.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		if ctx.Err() == nil {
			t.Error(err)
		}
		return
	}
	for i := range all.Items {
		pod := &all.Items[i]
		if err := m.syncPod(ctx, pod); err != nil && ctx.Err() == nil {
			t.Logf("pod %s: %v", pod.Name, err) // such as a pod that changed in the meantime
		}
	}
}

func (m *machine) syncPod(ctx context.Context, pod *corev1.Pod) error {
	p := m.pods[pod.UID]
	pods := m.client.CoreV1().Pods(namespace)
	switch {
	case pod.Spec.NodeName == "":
		return pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "machine"}}, metav1.CreateOptions{})
	case pod.DeletionTimestamp != nil:
		if p != nil && !p.stop(time.Duration(*pod.DeletionGracePeriodSeconds)*time.Second) {
			return nil
		}
		return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	case p == nil:
		if pod.Status.Phase != corev1.PodPending {
			return nil
		}
		return m.start(ctx, pod)
	default:
		return m.report(ctx, pod, p)
	}
}

// stop asks the process to end, and reports whether it has.
func (p *process) stop(grace time.Duration) bool {
	if p.stopped.IsZero() {
		p.stopped, p.grace = time.Now(), grace
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	}
	if time.Since(p.stopped) > p.grace {
		_ = p.cmd.Process.Kill()
	}
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// start starts the pod's process, once its secrets are there.
func (m *machine) start(ctx context.Context, pod *corev1.Pod) error {
	m.last++
	p := &process{ip: fmt.Sprintf("127.1.%d.%d", m.last/200, m.last%200+1), dir: filepath.Join(m.dir, fmt.Sprint(m.last)), ended: make(chan struct{})}
	c := pod.Spec.Containers[0]
	places := []string{"0.0.0.0", p.ip}
	secrets := map[string]map[string][]byte{}
	secret := func(name string) (map[string][]byte, error) {
		if secrets[name] == nil {
			s, err := m.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			secrets[name] = s.Data
		}
		return secrets[name], nil
	}
	for _, mount := range c.VolumeMounts {
		at := filepath.Join(p.dir, mount.MountPath)
		if err := os.MkdirAll(at, 0o700); err != nil {
			return err
		}
		if mount.Name != "tmp" {
			places = append(places, mount.MountPath, at)
		}
		for _, v := range pod.Spec.Volumes {
			if v.Name != mount.Name || v.Secret == nil {
				continue
			}
			data, err := secret(v.Secret.SecretName)
			if err != nil {
				return err
			}
			for key, value := range data {
				if err := os.WriteFile(filepath.Join(at, key), value, 0o600); err != nil {
					return err
				}
			}
		}
	}
	services, err := m.resolve(ctx)
	if err != nil {
		return err
	}
	replace := strings.NewReplacer(append(places, services...)...)
	env := []string{"KUBERNETES_SERVICE_HOST=127.0.0.1", "PATH=" + os.Getenv("PATH"), "HOME=" + p.dir, "TMPDIR=" + filepath.Join(p.dir, "tmp")}
	var vars []string
	for _, e := range c.Env {
		value := replace.Replace(e.Value)
		switch from := e.ValueFrom; {
		case from == nil:
		case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.name":
			value = pod.Name
		case from.FieldRef != nil && from.FieldRef.FieldPath == "status.podIP":
			value = p.ip
		case from.SecretKeyRef != nil:
			data, err := secret(from.SecretKeyRef.Name)
			if err != nil {
				return err
			}
			value = string(data[from.SecretKeyRef.Key])
		default:
			return fmt.Errorf("variable %s is of a kind that the chart does not use", e.Name)
		}
		env, vars = append(env, e.Name+"="+value), append(vars, "$("+e.Name+")", value)
	}
	args := append(append([]string{}, c.Command...), c.Args...)
	for i := range args {
		args[i] = strings.NewReplacer(vars...).Replace(replace.Replace(args[i]))
	}
	log, err := os.Create(filepath.Join(m.dir, fmt.Sprintf("%s-%d.log", pod.Name, m.last)))
	if err != nil {
		return err
	}
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Env, p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = env, p.dir, log, log
	if err := errors.Join(p.cmd.Start(), log.Close()); err != nil {
		return err
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // the exit code reports the outcome
	}()
	m.pods[pod.UID] = p
	return m.report(ctx, pod, p)
}

// resolve returns the names of services with their addresses: for a headless service those
// of its pods, or its own address for the first pod.
func (m *machine) resolve(ctx context.Context) ([]string, error) {
	services, err := m.client.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, s := range services.Items {
		if s.Spec.ClusterIP == corev1.ClusterIPNone {
			ips, err := addresses(ctx, m.client, s.Name, false)
			if err != nil {
				return nil, err
			}
			if len(ips) == 0 {
				ips = []string{"$(POD_IP)"}
			}
			out = append(out, s.Name+"."+namespace+".svc", strings.Join(ips, ","))
		}
	}
	return out, nil
}

// addresses returns the addresses of a service's pods, all or only the ready ones.
func addresses(ctx context.Context, client kubernetes.Interface, service string, readyOnly bool) ([]string, error) {
	s, err := client.CoreV1().Services(namespace).Get(ctx, service, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(s.Spec.Selector).String()})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, p := range pods.Items {
		if p.Status.PodIP != "" && p.DeletionTimestamp == nil && (ready(p) || !readyOnly) {
			out = append(out, p.Status.PodIP)
		}
	}
	return out, nil
}

// report writes how the process is into the pod's status.
func (m *machine) report(ctx context.Context, pod *corev1.Pod, p *process) error {
	c := pod.Spec.Containers[0]
	container := corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	phase, isReady := corev1.PodRunning, corev1.ConditionFalse
	select {
	case <-p.ended:
		code := p.cmd.ProcessState.ExitCode()
		container.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: int32(code)}}
		if phase = corev1.PodFailed; code == 0 {
			phase = corev1.PodSucceeded
		}
	default:
		if c.ReadinessProbe == nil || m.answers(ctx, p.ip, c) {
			isReady = corev1.ConditionTrue
		}
	}
	if pod.Status.Phase == phase && ready(*pod) == (isReady == corev1.ConditionTrue) && pod.Status.PodIP != "" {
		return nil
	}
	container.Ready = isReady == corev1.ConditionTrue
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = phase, p.ip, []corev1.PodIP{{IP: p.ip}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{container}
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodReady, Status: isReady, LastTransitionTime: metav1.Now()},
		{Type: corev1.ContainersReady, Status: isReady, LastTransitionTime: metav1.Now()},
	}
	_, err := m.client.CoreV1().Pods(namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// answers asks the readiness probe of a container.
func (m *machine) answers(ctx context.Context, ip string, c corev1.Container) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.ReadinessProbe.TimeoutSeconds)*time.Second)
	defer cancel()
	for _, port := range c.Ports {
		if get := c.ReadinessProbe.HTTPGet; port.Name == get.Port.StrVal {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:%d%s", ip, port.ContainerPort, get.Path), nil)
			if err != nil {
				return false
			}
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				return false
			}
			return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
		}
	}
	return false
}

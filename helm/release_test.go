//go:build cluster

package helm

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// releaseValues are the values of the README's third step, reduced to one small server on
// loopback.
const releaseValues = `
nats:
  url: tls://127.0.0.1:%[1]d
  monitoring: ["http://127.0.0.1:%[2]d"]
  replicas: 1
  auth: {kind: user, secret: rath-nats}
  ca: {secret: nats-ca}
operator:
  auth: {kind: user, secret: rath-operator}
provision: {enabled: true}
node:
  replicas: 2
  slots: 4
  drainSeconds: 5
  env:
    - {name: OPENAI_BASE_URL, value: "%[3]s/v1"}
    - {name: OPENAI_API_KEY, value: none}
router: {replicas: 1, drainSeconds: 5, preStopSeconds: 0}
stopMarginSeconds: 20
`

// tenant is the entry of a tenant in tenants.yaml.
const tenant = `  - name: %s
    users:
      - {name: %s, role: submit, passwordKey: %s}
`

// TestRelease follows helm/README.md with Helm, rath, nats-server and the processes
// of the pods, and compares the commands and their output with testdata/release.txt.
//
//	.ci/cluster -run TestRelease
func TestRelease(t *testing.T) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatalf("KUBECONFIG: %v", err)
	}
	config.WarningHandler = rest.NoWarnings{}
	config.QPS, config.Burst = 200, 200
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	restrict(t, client)
	model := newSilentModel(t)
	r := newStory(t, client, model.URL)
	newMachine(t, client)
	keda := newScaler(t, client)

	r.say("Who may do what: tenant acme, and ana, who may submit. The servers include the config map.")
	r.file("tenants.yaml", "tenants:\n"+fmt.Sprintf(tenant, "acme", "ana", "ANA_PASSWORD"))
	r.types("cat tenants.yaml")
	r.types("helm install rath-accounts accounts -f tenants.yaml --hide-notes")
	r.serve()

	r.say("Install: the streams first, then the fleet.")
	r.secret("rath-gossip", "key", gossipKey(t))
	r.types("helm install prod rath -f values.yaml --wait --timeout 3m --hide-notes")
	r.pods()
	r.types("helm test prod")
	r.types("rath cluster nodes ls", columns)

	r.say("A task from outside, by ana.")
	r.types("rath --tenant acme submit agent --model echo -m hello --id first --wait")

	r.say("A second tenant, with max, while the fleet works: the servers start again, and the fleet is left alone.")
	r.file("tenants.yaml", "tenants:\n"+fmt.Sprintf(tenant, "acme", "ana", "ANA_PASSWORD")+fmt.Sprintf(tenant, "globex", "max", "MAX_PASSWORD"))
	r.types("cat tenants.yaml")
	r.types("helm upgrade rath-accounts accounts -f tenants.yaml --hide-notes")
	r.serve()
	r.pods()
	r.types("rath --tenant globex submit agent --model echo -m hi --id first --wait")

	r.say("Upgrade: the nodes one by one.")
	r.types("helm upgrade prod rath -f values.yaml --set node.replicas=3 --wait --timeout 3m --hide-notes")
	r.pods()

	r.say("The key of the gossip changes: old and new, new and old, new. After each the fleet is whole.")
	before, after := r.key, gossipKey(t)
	for _, keys := range []string{before + "\n" + after, after + "\n" + before, after} {
		r.secret("rath-gossip", "key", keys)
		r.types("helm upgrade prod rath -f values.yaml --set node.replicas=3 --wait --timeout 3m --hide-notes")
		r.types("rath cluster nodes ls", columns)
	}

	r.say("Roll back to before the first of them: fewer nodes, and the key of today.")
	r.types("helm rollback prod 1 --wait --timeout 3m")
	r.pods()
	r.types("rath cluster nodes ls", columns)
	r.types("helm history prod")

	r.say("A second release joins the first one.")
	r.types("helm install old rath -f values.yaml --set gossip.fleet=prod-rath,node.pool=old,node.replicas=1,router.enabled=false,provision.enabled=false --wait --timeout 3m --hide-notes")
	r.types("rath cluster nodes ls", columns)
	r.types("helm uninstall old --wait")
	r.gone("old")

	r.say("1,000 runs wait, 125 of them ask for a node each, and 4 run at each node.")
	r.types("helm upgrade prod rath -f values.yaml --set autoscaling.enabled=true,autoscaling.waitingPerNode=125 --wait --timeout 3m --hide-notes")
	keda.read(t, "prod-rath-node")
	for _, wait := range []int{500, 1000} { // TASKS takes 1,000 of a tenant's workflow at once
		r.submit(wait + 8 - r.tasks)
		r.until(fmt.Sprint(wait, " wait"), func() (string, bool) {
			n, err := keda.value(t.Context())
			return fmt.Sprint(n, " ", err), n == int64(wait)
		})
		fmt.Fprintf(&r.b, "waiting: %d\n\n", wait)
	}
	keda.follow(t, "prod-rath-node")
	r.until("8 nodes", func() (string, bool) {
		pods := names((&kubelet{client: client}).pods(t), "node")
		return fmt.Sprint(pods), len(pods) == 8
	})
	r.pods()
	r.until("8 of them with 4 runs each", func() (string, bool) {
		n, err := keda.value(t.Context())
		return fmt.Sprint(n, " ", err), n == 1008-8*4
	})
	r.say("Of 1,008 runs 32 run and 976 wait: that asks for 8 nodes, too.")
	r.types("rath cluster nodes ls", columns)

	r.say("Uninstall: the secrets stay, and in NATS every run.")
	model.answer()
	keda.stop(t, "prod-rath-node")
	r.types("helm uninstall prod --wait --timeout 3m")
	r.gone("prod")
	r.left()
	compare(t, filepath.Join("testdata", "release.txt"), r.b.String())
}

// story is a terminal outside the cluster, with its commands and their output.
type story struct {
	t      *testing.T
	client kubernetes.Interface
	dir    string
	env    []string
	nats   int
	server *exec.Cmd
	ca     []byte
	key    string // of the gossip
	tasks  int
	b      strings.Builder
}

// newStory writes values.yaml and the configuration of a NATS server, as the README does.
func newStory(t *testing.T, client kubernetes.Interface, model string) *story {
	t.Helper()
	r := &story{t: t, client: client, dir: t.TempDir(), nats: freePort(t)}
	monitor := freePort(t)
	for _, dir := range []string{chartDir, accountsDir} {
		chart, err := filepath.Abs(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(chart, filepath.Join(r.dir, dir)); err != nil {
			t.Fatal(err)
		}
	}
	r.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "KUBECONFIG=" + os.Getenv("KUBECONFIG"), "HELM_NAMESPACE=" + namespace,
		"RATH_SERVER=tls://127.0.0.1:" + fmt.Sprint(r.nats), "NATS_CA=" + filepath.Join(r.dir, "tls.crt"),
	}
	r.file("values.yaml", fmt.Sprintf(releaseValues, r.nats, monitor, model))
	r.run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
		"-subj", "/CN=nats", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "tls.key", "-out", "tls.crt")
	r.file("nats.conf", fmt.Sprintf(`
listen: 127.0.0.1:%d
http: 127.0.0.1:%d
tls {cert_file: tls.crt, key_file: tls.key}
jetstream {store_dir: jetstream, sync_interval: always, max_file_store: 20GB}
include accounts.conf
`, r.nats, monitor))
	ca, err := os.ReadFile(filepath.Join(r.dir, "tls.crt"))
	if err != nil {
		t.Fatal(err)
	}
	r.ca = ca
	r.secret("nats-ca", "ca.crt", string(r.ca))
	r.secret("rath-nats", "user", "node", "password", "node-word")
	r.secret("rath-operator", "user", "operator", "password", "operator-word")
	r.env = append(r.env, "NATS_USER=operator", "NATS_PASSWORD=operator-word")
	return r
}

// passwords returns the passwords of the servers' users from their environment.
var passwords = []string{"NODE_PASSWORD=node-word", "OPERATOR_PASSWORD=operator-word", "ANA_PASSWORD=ana-word", "MAX_PASSWORD=max-word"}

// serve starts the NATS server with the config map of its accounts, again if it runs.
func (r *story) serve() {
	r.t.Helper()
	accounts, err := r.client.CoreV1().ConfigMaps(namespace).Get(r.t.Context(), "rath-accounts", metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.file("accounts.conf", accounts.Data["accounts.conf"])
	log, err := os.OpenFile(filepath.Join(r.dir, "nats.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	defer log.Close()
	if r.server == nil {
		r.t.Cleanup(func() {
			r.stop()
			if r.t.Failed() {
				text, _ := os.ReadFile(log.Name())
				r.t.Logf("nats-server: %s", text[max(0, len(text)-3000):])
			}
		})
	} else {
		r.stop()
	}
	cmd := exec.Command("nats-server", "-c", "nats.conf")
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = r.dir, log, log, append(slices.Clone(r.env), passwords...)
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.server = cmd
	r.until("the NATS server listens", func() (string, bool) {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", r.nats))
		if err == nil {
			conn.Close()
		}
		return fmt.Sprint(err), err == nil
	})
}

// stop ends the NATS server.
func (r *story) stop() {
	_ = r.server.Process.Kill() // it may have ended
	_ = r.server.Wait()
}

func (r *story) say(text string) { r.b.WriteString("# " + text + "\n\n") }

// types runs a command, which must succeed, and compares its output.
func (r *story) types(line string, edit ...func(string) string) {
	r.t.Helper()
	r.t.Log(line)
	args := strings.Fields(line)
	env := r.env
	for tenant, user := range map[string]string{"acme": "ana", "globex": "max"} {
		if strings.Contains(line, "--tenant "+tenant) {
			env = append(slices.Clone(env), "NATS_USER="+user, "NATS_PASSWORD="+user+"-word")
		}
	}
	out := r.runWith(env, args)
	for _, e := range edit {
		out = e(out)
	}
	r.b.WriteString("$ " + line + "\n" + dates.ReplaceAllString(out, "TIME") + "\n")
}

var dates = regexp.MustCompile(`(Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8} 20[0-9]{2}( *)`)

func (r *story) run(args ...string) string {
	r.t.Helper()
	return r.runWith(r.env, args)
}

func (r *story) runWith(env, args []string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var out, said bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = r.dir, env, &out, &said
	if err := cmd.Run(); err != nil {
		r.t.Fatalf("$ %s\n%s%s%v", strings.Join(args, " "), out.String(), said.String(), err)
	}
	return out.String()
}

func (r *story) file(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// secret makes a secret, or gives it other contents.
func (r *story) secret(name string, pairs ...string) {
	r.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{}}
	for p := range slices.Chunk(pairs, 2) {
		s.StringData[p[0]] = p[1]
	}
	if name == "rath-gossip" && r.key == "" {
		r.key = pairs[1]
	}
	secrets := r.client.CoreV1().Secrets(namespace)
	_, err := secrets.Update(r.t.Context(), s, metav1.UpdateOptions{})
	if err != nil {
		_, err = secrets.Create(r.t.Context(), s, metav1.CreateOptions{})
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// pods writes which pods of the roles there are, once all of them are ready.
func (r *story) pods() {
	r.t.Helper()
	var all []string
	r.until("all pods are ready", func() (string, bool) {
		all = nil
		whole := true
		for _, p := range (&kubelet{client: r.client}).pods(r.t) {
			if of := role(p); of == "router" {
				all = append(all, p.Labels["app.kubernetes.io/instance"]+"-rath-router-…")
			} else if of == "node" {
				all = append(all, p.Name)
			} else {
				continue
			}
			whole = whole && ready(p) && p.DeletionTimestamp == nil
		}
		return fmt.Sprint(all), whole && len(all) > 0
	})
	slices.Sort(all)
	r.b.WriteString("ready: " + strings.Join(all, ", ") + "\n\n")
}

// gone waits until a release has no pods.
func (r *story) gone(release string) {
	r.t.Helper()
	r.until("no pods of "+release, func() (string, bool) {
		n := 0
		for _, p := range (&kubelet{client: r.client}).pods(r.t) {
			if p.Labels["app.kubernetes.io/instance"] == release && role(p) != "test" {
				n++
			}
		}
		return fmt.Sprint(n), n == 0
	})
}

// left writes the objects that remain in the namespace.
func (r *story) left() {
	r.t.Helper()
	var all []string
	secrets, err := r.client.CoreV1().Secrets(namespace).List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, s := range secrets.Items {
		all = append(all, "secret/"+s.Name)
	}
	sets, err := r.client.AppsV1().StatefulSets(namespace).List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, s := range sets.Items {
		all = append(all, "statefulset/"+s.Name)
	}
	jobs, err := r.client.BatchV1().Jobs(namespace).List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, j := range jobs.Items {
		all = append(all, "job/"+j.Name)
	}
	r.b.WriteString("left: " + strings.Join(all, ", ") + "\n")
}

// until asks again and again.
func (r *story) until(what string, done func() (string, bool)) {
	r.t.Helper()
	r.t.Log("until " + what)
	var last string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		var ok bool
		if last, ok = done(); ok {
			return
		}
	}
	r.t.Fatalf("not within %v: %s; it is %s", patience, what, last)
}

// submit stores tasks of tenant acme that the model leaves without an answer, as any
// NATS client does.
func (r *story) submit(n int) {
	r.t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", r.nats))
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := bufio.NewReaderSize(conn, 1).ReadString('\n'); err != nil { // INFO, and TLS from there on
		r.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.ca)
	secure := tls.Client(conn, &tls.Config{ServerName: "127.0.0.1", RootCAs: roots})
	var b strings.Builder
	b.WriteString(`CONNECT {"user":"ana","pass":"ana-word","verbose":false,"pedantic":false,"protocol":1,"headers":false,"lang":"test","version":"1"}` + "\r\n")
	for range n {
		r.tasks++
		task := fmt.Sprintf(`{"id":"waits-%d","input":"wait","model":"silent"}`, r.tasks)
		fmt.Fprintf(&b, "PUB rath.task.acme.ana.agent %d\r\n%s\r\n", len(task), task)
	}
	b.WriteString("PING\r\n")
	if _, err := secure.Write([]byte(b.String())); err != nil {
		r.t.Fatal(err)
	}
	answers := bufio.NewReader(secure)
	for {
		line, err := answers.ReadString('\n')
		if err != nil || strings.HasPrefix(line, "-ERR") {
			r.t.Fatalf("%q, %v", line, err)
		}
		if strings.HasPrefix(line, "PONG") {
			break
		}
	}
	fmt.Fprintf(&r.b, "%d tasks on rath.task.acme.ana.agent\n", n)
}

// silentModel accepts requests and answers none until it is released.
type silentModel struct {
	*httptest.Server
	open chan struct{}
}

func newSilentModel(t *testing.T) *silentModel {
	m := &silentModel{open: make(chan struct{})}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-m.open:
		case <-r.Context().Done():
		}
		http.Error(w, `{"error":{"message":"the test is over"}}`, http.StatusBadRequest)
	}))
	t.Cleanup(func() {
		m.answer()
		m.Close()
	})
	return m
}

func (m *silentModel) answer() {
	select {
	case <-m.open:
	default:
		close(m.open)
	}
}

// columns keeps the reproducible columns of a table of nodes: names, pools, and whether the
// gossip of the answering node sees them.
func columns(table string) string {
	var b strings.Builder
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		fmt.Fprintf(&b, "%-18s %-8s %s\n", routers.ReplaceAllString(f[0], "-router-…"), f[2], f[3])
	}
	return b.String()
}

var routers = regexp.MustCompile(`-router-[a-z0-9]+-[a-z0-9]+`)

func gossipKey(t *testing.T) string {
	t.Helper()
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(key)
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

//go:build e2e && linux

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// site is an operator's fleet on this machine, set up by the documents: a NATS server with
// the printed accounts, three nodes of examples/change in their own processes, and a model.
type site struct {
	t       *testing.T
	server  string // address of the NATS server
	dir     string // of the operator
	commits string // where the workflow commits to
	signers string // file with the key of the nodes
	nodes   []*job
	// passwords of the server's users.
	passwords map[string]string
}

// siteTenant is the tenant of the site's clients.
const siteTenant = "acme"

// newSite sets up a fleet whose model answers from a script.
func newSite(t *testing.T, script string) *site {
	t.Helper()
	need(t, "ssh-keygen", "openssh-client")
	operator := newDesk(t)
	s := &site{t: t, dir: operator.dir, passwords: map[string]string{}}
	for program, of := range map[string]string{"nats-server": "github.com/nats-io/nats-server/v2", "change": "../examples/change"} {
		command(t, ".", os.Environ(), "go", "build", "-o", filepath.Join(s.dir, program), of)
	}

	accounts := operator.rath("cluster", "provision", "--print-permissions", "--as", "nats", "--tenant", siteTenant,
		"--user", "ana=submit", "--user", "bob=approve", "--user", "eve=observe")
	accounts.want(t, 0)
	operator.file("accounts.conf", accounts.stdout)
	port, monitor, model := natstest.FreePort(t), natstest.FreePort(t), natstest.FreePort(t)
	operator.file("server.conf", fmt.Sprintf(`listen: 127.0.0.1:%d
http: 127.0.0.1:%d
jetstream { store_dir: %q, sync_interval: always, max_file_store: 20GB }
include accounts.conf
`, port, monitor, filepath.Join(s.dir, "nats")))
	s.server = fmt.Sprintf("127.0.0.1:%d", port)
	for _, variable := range regexp.MustCompile(`\$([A-Z_]+_PASSWORD)`).FindAllStringSubmatch(accounts.stdout, -1) {
		user := strings.ToLower(strings.ReplaceAll(strings.TrimSuffix(variable[1], "_PASSWORD"), "_", "-"))
		s.passwords[user] = user + "-secret"
		operator.env = append(operator.env, variable[1]+"="+s.passwords[user])
	}
	server := operator.begin(exec.Command(filepath.Join(s.dir, "nats-server"), "-c", "server.conf"))
	server.until("server", func() bool { return strings.Contains(server.stderr.String(), "Server is ready") })

	monitoring := fmt.Sprintf("http://127.0.0.1:%d", monitor)
	operator.rath("cluster", "provision", "--server", s.url("operator"), "--replicas", "1", "--store-bytes", "8GiB", "--monitor", monitoring).want(t, 0)

	models := operator.start("models", "serve", "--script", script, "--listen", fmt.Sprintf("127.0.0.1:%d", model))
	models.until("model", func() bool { return strings.Contains(models.stdout.String(), "OPENAI_BASE_URL") })

	operator.file("gossip.key", operator.rath("cluster", "key").stdout)
	command(t, s.dir, os.Environ(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", "signing.key")
	public := command(t, s.dir, os.Environ(), "ssh-keygen", "-y", "-f", "signing.key")
	s.signers = filepath.Join(s.dir, operator.file("signers", `rath namespaces="rath" `+public))
	s.commits = filepath.Join(s.dir, "commits")
	must.Do(t, os.Mkdir(s.commits, 0o700))
	var peers []string
	for i := range 3 {
		gossip := fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))
		name := string(rune('a' + i))
		node := newDesk(t, "CHANGE_COMMITS="+s.commits, "OPENAI_API_KEY=none", fmt.Sprintf("OPENAI_BASE_URL=http://127.0.0.1:%d/v1", model),
			"NATS_PASSWORD="+s.passwords["node"])
		job := node.begin(exec.Command(filepath.Join(s.dir, "change"),
			"-nats", "nats://"+s.server, "-user", "node", "-monitor", monitoring, "-name", name, "-model", "m",
			"-gossip", gossip, "-join", strings.Join(peers, ","), "-gossip-key-file", filepath.Join(s.dir, "gossip.key"),
			"-signing-key", filepath.Join(s.dir, "signing.key")))
		job.until("node", func() bool { return strings.Contains(job.stderr.String(), "is up") })
		peers = append(peers, gossip)
		s.nodes = append(s.nodes, job)
	}
	return s
}

// url is where a user of the server connects.
func (s *site) url(user string) string {
	return fmt.Sprintf("nats://%s:%s@%s", user, s.passwords[user], s.server)
}

// client is the directory of a user who has only a login of the server.
func (s *site) client(user string) *desk {
	return newDesk(s.t, "NATS_URL="+s.url(user), "RATH_TENANT="+siteTenant)
}

// repository writes the files that clients hand over.
func (d *desk) repository() (dir string) {
	d.t.Helper()
	dir = filepath.Join(d.dir, "repo")
	for name, text := range map[string]string{"greeting.txt": "Hello.\n", "doc/usage.md": "Prints a greeting.\n", ".gitignore": "*.log\n", "build.log": "not for others\n"} {
		name = filepath.Join(dir, name)
		must.Do(d.t, os.MkdirAll(filepath.Dir(name), 0o755))
		must.Do(d.t, os.WriteFile(name, []byte(text), 0o644))
	}
	return dir
}

// committed returns the patches that the workflow has committed.
func (s *site) committed() []string {
	s.t.Helper()
	names := must.Get(filepath.Glob(filepath.Join(s.commits, "*.patch")))(s.t)
	var all []string
	for _, name := range names {
		text := must.Get(os.ReadFile(name))(s.t)
		all = append(all, string(text))
	}
	return all
}

const (
	changeScript = "../examples/change/model.txtar"
	firstPatch   = "-Hello.\n+Hello!\n"
	secondPatch  = "-Hello.\n+Hello, world!\n"
)

// TestClientOfFleet: users with a login of a fleet, one role each, and no store, go through
// a whole change. Ana submits a repository and watches. Bob sees the diff in the question,
// rejects it, and approves the next one while the node of the run is killed. Ana applies
// it, and verifies the evidence with rath and with ssh-keygen.
func TestClientOfFleet(t *testing.T) {
	t.Parallel()
	script := must.Get(filepath.Abs(changeScript))(t)
	s := newSite(t, script)
	ana, bob, eve := s.client("ana"), s.client("bob"), s.client("eve")
	repo := ana.repository()
	say := func(o outcome) outcome {
		t.Logf("$ %s\n%s%s[exit %d]", o.command, o.stdout, o.stderr, o.code)
		return o
	}

	// Hand it over, and watch.
	say(ana.rath("submit", "change", "-C", repo, "--id", "one", "-m", "Make greeting.txt friendlier.")).want(t, 0, "one")
	watch := ana.start("show", "one", "--follow")
	watch.until("question", func() bool { return strings.Contains(watch.stderr.String(), "Commit this patch?") })
	if said := watch.stdout.String(); !strings.Contains(said, "write_workspace_file") || !strings.Contains(said, "The greeting is changed.") {
		t.Errorf("it does not show the work:\n%s", said)
	}
	say(eve.rath("why", "one")).want(t, 0, "approval: Commit this patch?", "rath answer one yes")

	// The question has the diff. Only Bob may answer it, and turns the first patch down.
	say(bob.rath("answer")).want(t, 0, "Commit this patch?", "+Hello!")
	say(ana.rath("answer", "one", "yes")).want(t, 7, "approve")
	say(eve.rath("submit", "change", "-m", "Something else.")).want(t, 7, "submit")
	say(bob.rath("answer", "one", "no", "--reason", "Name the world.")).want(t, 0)
	watch.until("second question", func() bool { return strings.Count(watch.stderr.String(), "Commit this patch?") > 1 })
	say(bob.rath("answer")).want(t, 0, "+Hello, world!")

	// The node that holds the run dies; the approval is for the others.
	var shown struct {
		Node string `json:"node"`
	}
	if err := json.Unmarshal([]byte(ana.rath("ps", "--where", "run=one", "--format", "jsonl").stdout), &shown); err != nil || shown.Node == "" {
		t.Fatalf("ps says on %q: %v", shown.Node, err)
	}
	killed := 0
	for _, n := range s.nodes {
		if up := regexp.MustCompile(`"node is up".*`).FindString(n.stderr.String()); strings.Contains(up, shown.Node) {
			n.signal(syscall.SIGKILL)
			killed++
		}
	}
	if killed != 1 {
		t.Fatalf("%d nodes are %s", killed, shown.Node)
	}
	say(bob.rath("answer", "one", "yes", "--by", "The Chief Executive")).want(t, 0, "approved")
	say(watch.wait()).want(t, 0, "succeeded")
	if got := s.committed(); len(got) != 1 || !strings.HasSuffix(got[0], secondPatch) {
		t.Errorf("committed: %q", got)
	}

	// Out again: the diff, the files, and who wrote which line.
	say(ana.rath("diff", "one")).want(t, 0, "+Hello, world!")
	say(ana.rath("apply", "one", "-C", repo)).want(t, 0, "greeting.txt")
	if text, err := os.ReadFile(filepath.Join(repo, "greeting.txt")); err != nil || string(text) != "Hello, world!\n" {
		t.Errorf("applied: %q, %v", text, err)
	}
	say(ana.rath("why", "one:greeting.txt:1")).want(t, 0, "made by  coder with write_workspace_file", "step 9.0")

	// The evidence, against the key of the nodes. Who answered is who logged in.
	say(ana.rath("export", "one", "--dossier", "html", "--out", "one.html")).want(t, 0)
	verified := ana.rath("verify", "one.html", "--signers", s.signers, "--require-anchor", "--extract", "signed")
	say(verified).want(t, 0, "verified: run one")
	verify := regexp.MustCompile(`(?m)^\s*(ssh-keygen -Y verify .*)$`).FindStringSubmatch(verified.stderr)
	if verify == nil {
		t.Fatal("verify does not print how ssh-keygen checks the same")
	}
	say(ana.typed(verify[1])).want(t, 0, `Good "rath" signature for rath`)
	ana.rath("export", "one", "--dossier", "md", "--out", "one.md").want(t, 0)
	text := must.Get(os.ReadFile(filepath.Join(ana.dir, "one.md")))(t)
	answered := regexp.MustCompile(`(?m)^.*Chief Executive.*$`).FindString(string(text))
	t.Log(answered)
	if !strings.Contains(answered, "bob (says to be The Chief Executive)") {
		t.Errorf("the dossier does not keep what was proved and what was claimed apart: %q", answered)
	}

	// Another tenant's runs are not for this client.
	say(ana.rath("ps", "--tenant", "globex")).want(t, 7, "no permission to publish to rath.query.globex.runs", "these credentials belong to tenant acme: act for it (--tenant acme)")
}

// TestClientOfFleetJavaScript does the same with a JavaScript client, testdata/client.mjs,
// which follows messages/FORMAT.md and uses none of our code.
func TestClientOfFleetJavaScript(t *testing.T) {
	t.Parallel()
	script := must.Get(filepath.Abs(changeScript))(t)
	s := newSite(t, script)
	d := s.client("ana")
	d.env = append(d.env, "ANA="+s.passwords["ana"], "BOB="+s.passwords["bob"])
	repo := d.repository()
	program := must.Get(os.ReadFile(filepath.Join("testdata", "client.mjs")))(t)
	d.dir = installJS(t)
	d.file("client.mjs", string(program))
	o := d.begin(exec.Command("node", "client.mjs", s.server, siteTenant, repo, s.signers)).wait()
	t.Log(o)
	o.want(t, 0,
		"coder: The greeting is changed.", // as it came
		"Commit this patch?", "+Hello!", "+Hello, world!",
		"succeeded",
		"greeting.txt: written",
		"chain: 4 logs hold together",
		`Good "rath" signature for rath`,
		"greeting.txt:1 is of coder, write_workspace_file at step 9.0 of run js",
	)
	if text, err := os.ReadFile(filepath.Join(repo, "greeting.txt")); err != nil || string(text) != "Hello, world!\n" {
		t.Errorf("applied: %q, %v", text, err)
	}
	if got := s.committed(); len(got) != 1 || !strings.HasSuffix(got[0], secondPatch) {
		t.Errorf("committed: %q", got)
	}
}

//go:build e2e && linux

package e2e

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// readmeAddress is where the documents say that a node of `rath dev` listens, and
// where NATS clients look without an address.
const readmeAddress = "127.0.0.1:4222"

// programTimeout bounds the installation of a client and the wait for its first piece.
const programTimeout = 2 * time.Minute

// The documents whose programs are run here.
const (
	readmePage     = "README.md"
	clientsPage    = "docs/clients.md"
	operationsPage = "docs/operations.md"
)

// document returns the text of a document, named from the repository's root.
func document(t *testing.T, page string) string {
	t.Helper()
	data := must.Get(os.ReadFile(filepath.Join("..", filepath.FromSlash(page))))(t)
	return string(data)
}

// firstBlock returns the first code block of a language in a document, verbatim.
func firstBlock(t *testing.T, page, language string) string {
	t.Helper()
	return blockOf(t, page, document(t, page), language, 0)
}

// blockOf returns the n-th code block of a language in the text of a file.
func blockOf(t *testing.T, file, text, language string, n int) string {
	t.Helper()
	blocks := regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(text, -1)
	if n >= len(blocks) {
		t.Fatalf("%s has %d blocks of %s, want at least %d", file, len(blocks), language, n+1)
	}
	return blocks[n][1]
}

// need fails the test if a program that it runs is missing.
func need(t *testing.T, program, debianPackage string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Fatalf("this test runs %s, which is not there: apt-get install %s", program, debianPackage)
	}
}

// startDev runs `rath dev` on a new desk until the test ends.
func startDev(t *testing.T, args ...string) *desk {
	t.Helper()
	l, err := net.Listen("tcp", readmeAddress)
	if err != nil {
		t.Fatalf("the documents' programs need %s, which something else uses: %v", readmeAddress, err)
	}
	must.Do(t, l.Close())
	d := newDesk(t)
	node := d.start(append([]string{"dev"}, args...)...)
	t.Cleanup(func() {
		if err := node.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		node.wait()
	})
	node.until("address", func() bool {
		line, _, whole := strings.Cut(node.stdout.String(), "\n")
		return whole && strings.Contains(line, "nats://"+readmeAddress)
	})
	return d
}

// jsPages are the documents with a JavaScript program each.
var jsPages = map[string]string{"hello.mjs": readmePage, "cancel.mjs": clientsPage}

// installJS installs the packages that the README names, and writes its programs with these
// names to the same directory.
func installJS(t *testing.T, files ...string) (dir string) {
	t.Helper()
	install := regexp.MustCompile("`npm (install [^`]+)`").FindStringSubmatch(document(t, readmePage))
	if install == nil {
		t.Fatal("README.md does not say what to install with npm")
	}
	dir = t.TempDir()
	// The programs that read the files of a head also need the package that FORMAT.md names.
	installModules(t, dir, os.Environ(), append(strings.Fields(install[1])[1:], "fzstd")...)
	for _, name := range files {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(firstBlock(t, jsPages[name], "js")), 0o644))
	}
	return dir
}

// installModules installs modules of npm in a directory. Their registry may be away for a
// moment.
func installModules(t *testing.T, dir string, env []string, modules ...string) {
	t.Helper()
	need(t, "node", "nodejs")
	need(t, "npm", "npm")
	for tries := 3; ; tries-- {
		ctx, cancel := context.WithTimeout(t.Context(), programTimeout)
		cmd := exec.CommandContext(ctx, "npm", append([]string{"install", "--no-audit", "--no-fund"}, modules...)...)
		cmd.Dir, cmd.Env, cmd.WaitDelay = dir, env, 5*time.Second
		out, err := cmd.CombinedOutput()
		cancel()
		if err == nil {
			return
		}
		t.Logf("npm install %s: %v\n%s", strings.Join(modules, " "), err, out)
		if tries == 1 {
			t.FailNow()
		}
	}
}

// program runs a program to its end and returns its output; it must succeed.
func (d *desk) program(name string, args ...string) string {
	d.t.Helper()
	o := d.begin(exec.Command(name, args...)).wait()
	o.want(d.t, 0)
	return o.stdout
}

func TestREADMEJavaScript(t *testing.T) {
	d := startDev(t)
	d.dir = installJS(t, "hello.mjs")
	out := d.program("node", "hello.mjs")
	streamed, result, _ := strings.Cut(out, "\n")
	if streamed != "echo: Hello!" {
		t.Errorf("it streamed %q", streamed)
	}
	for _, want := range []string{"workflow: 'agent'", "state: 'succeeded'", "output: 'echo: Hello!'"} {
		if !strings.Contains(result, want) {
			t.Errorf("the result has no %s:\n%s", want, result)
		}
	}
}

// TestREADMECancel stops the README's program in the middle of an answer that
// takes twenty seconds, with the program of docs/clients.md.
func TestREADMECancel(t *testing.T) {
	script, err := filepath.Abs(filepath.Join("testdata", "readme_slow.txtar"))
	must.Do(t, err)
	d := startDev(t, "--script", script)
	d.dir = installJS(t, "hello.mjs", "cancel.mjs")

	nc, err := nats.Connect(readmeAddress)
	must.Do(t, err)
	defer nc.Close()
	deltas, err := nc.SubscribeSync("rath.run.default.*.delta")
	must.Do(t, err)
	must.Do(t, nc.Flush())

	hello := d.begin(exec.Command("node", "hello.mjs"))
	m, err := deltas.NextMsg(programTimeout)
	if err != nil {
		t.Fatalf("no delta: %v\n%s", err, hello.stderr.String())
	}
	id := strings.Split(m.Subject, ".")[3]

	// The program has printed the first word before the answer is there.
	hello.until("first word", func() bool { return strings.HasPrefix(hello.stdout.String(), "word000") })
	if out := d.program("node", "cancel.mjs", id, "changed my mind"); !strings.Contains(out, "done: true") {
		t.Errorf("the answer to the cancel is %s", out)
	}
	o := hello.wait()
	o.stderr = "" // the program prints them
	o.want(t, 0, "state: 'cancelled'", "code: 'cancelled'", "changed my mind")
	if strings.Contains(o.stdout, "word199") {
		t.Error("the answer was streamed to its end")
	}
	// A cancelled run stays cancelled.
	if out := d.program("node", "cancel.mjs", id, "again"); !strings.Contains(out, "wrong_state") {
		t.Errorf("a second cancel is answered with %s", out)
	}
}

// TestClientsPython runs the Python lines of docs/clients.md with a stand-in for nats-py,
// whose registry is not available everywhere.
func TestClientsPython(t *testing.T) {
	need(t, "python3", "python3")
	d := startDev(t)
	module := must.Get(os.ReadFile(filepath.Join("testdata", "readme_nats.py")))(t)
	for name, text := range map[string]string{"nats.py": string(module), "hello.py": firstBlock(t, clientsPage, "python")} {
		d.file(name, text)
	}
	out := d.program("python3", "hello.py")
	streamed, result, _ := strings.Cut(out, "\n")
	if streamed != "echo: Hello!" {
		t.Errorf("it streamed %q", streamed)
	}
	for _, want := range []string{"'workflow': 'agent'", "'state': 'succeeded'", "'output': 'echo: Hello!'"} {
		if !strings.Contains(result, want) {
			t.Errorf("the result has no %s:\n%s", want, result)
		}
	}
}

// TestREADMELines holds the two languages' lines to the same subjects and the
// same task, and to 80 columns.
func TestREADMELines(t *testing.T) {
	js, python := firstBlock(t, readmePage, "js"), firstBlock(t, clientsPage, "python")
	for _, want := range []string{"rath.run.default.", "rath.task.default.anonymous.agent", `"Hello!"`} {
		if !strings.Contains(js, want) || !strings.Contains(python, want) {
			t.Errorf("%s is not in both:\n%s\n%s", want, js, python)
		}
	}
	for _, block := range []string{js, python, firstBlock(t, clientsPage, "js")} {
		for line := range strings.Lines(block) {
			if n := len(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("a line has %d columns: %s", n, line)
			}
		}
	}
}

// TestREADMEDemo compares the demo with the README, except for ids, times and numbers.
func TestREADMEDemo(t *testing.T) {
	d := newDesk(t)
	d.env[0] = "PATH=" + os.Getenv("PATH") // without rath in it, the hints take a line each
	demo := d.begin(exec.Command(filepath.Join(d.bin, "rath"), "demo")).wait()
	demo.want(t, 0)
	if diff := cmp.Diff(strings.Split(plain(firstBlock(t, readmePage, "text")), "\n"), strings.Split(plain(demo.stdout), "\n")); diff != "" {
		t.Errorf("the demo is not what README.md shows (-README +demo):\n%s", diff)
	}
}

var (
	changing  = regexp.MustCompile(`run-[a-z0-9]+|\b[0-9a-f]{6}\b|[0-9][0-9,.]*( ms| s\b)?`)
	howCalled = regexp.MustCompile(`(?m)^(next)?\s+\S.*? (why|show|demo) `)
	blanks    = regexp.MustCompile(`[ \t]+`)
)

// plain replaces the parts that differ between runs, and the name under which rath was
// called.
func plain(s string) string {
	s = howCalled.ReplaceAllString(s, "$1 rath $2 ")
	s = changing.ReplaceAllString(s, "#")
	return blanks.ReplaceAllString(s, " ")
}

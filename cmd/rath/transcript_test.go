package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/rathcluster/rath/internal/platform/scratch"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox/local"
)

var update = flag.Bool("update", false, "rewrite the transcripts of testdata")

// asPlayed is set in the process that plays one test.
const asPlayed = "RATH_TEST_AS_PLAYED"

// atOnce is the default number of tests that are played concurrently: they wait for
// each other's processes, deadlines and disks more than they compute.
const atOnce = "6"

func TestMain(m *testing.M) {
	local.Reexec()
	scratch.InMemory()
	if name := os.Getenv(asProgram); name != "" {
		program(name)
	}
	if os.Getenv(asCommand) != "" {
		main()
	}
	if err := flag.Set("test.parallel", atOnce); err != nil { // flags of the command line are parsed later and win
		panic(err)
	}
	os.Exit(m.Run())
}

// TestTranscripts plays the command lines of testdata/*.txtar in a directory of their
// own and compares their output. A transcript's files are there before; a word replaces
// any text that differs between two runs. A process of its own plays each transcript in
// that directory.
//
//	$ rath ps            a command; NAME=value before it sets the environment
//	> text               a line of standard error
//	text                 a line of standard output
//	[exit 3]             the exit code, if it is not 0
//
// "< FILE" and "> FILE" redirect, and "sub FILE OLD NEW" changes a file. "offer
// REVISION" starts a node that offers the workflow release in place of the one
// before, "await RUN STATE" waits for one of its runs, and "serve TOOL" is a
// program with a tool. "git" is git, as a user without configuration of her own has it.
func TestTranscripts(t *testing.T) {
	if os.Getenv(asPlayed) == "" {
		t.Parallel() // beside the other tests that wait
	}
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			if isPlayed(t) {
				return
			}
			abs := must.Get(filepath.Abs(name))(t)
			ar := must.Get(txtar.ParseFile(name))(t)
			dir := t.TempDir()
			for _, f := range ar.Files {
				target := filepath.Join(dir, filepath.FromSlash(f.Name))
				must.Do(t, os.MkdirAll(filepath.Dir(target), 0o755))
				data := bytes.ReplaceAll(f.Data, []byte("\\-- "), []byte("-- ")) // a txtar file in a txtar file
				must.Do(t, os.WriteFile(target, data, 0o644))
			}
			t.Chdir(dir)
			t.Setenv(asCommand, "1") // for the nodes of a fleet
			got := play(t, string(ar.Comment), dir)
			if *update {
				ar.Comment = []byte(got)
				must.Do(t, os.WriteFile(abs, txtar.Format(ar), 0o644))
				return
			}
			if want := string(ar.Comment); got != want {
				t.Errorf("%s differs (go test ./cmd/rath -update rewrites it):\n%s", name, firstDifference(got, want))
			}
		})
	}
}

// isPlayed plays this test in a process of its own, beside others, and then returns
// true; in that process it returns false. It is for tests that change the directory or
// the environment, or wait much of their time: a few are played concurrently.
func isPlayed(t *testing.T) bool {
	t.Helper()
	if os.Getenv(asPlayed) != "" {
		return false
	}
	t.Parallel()
	startPlayed(t)()
	return true
}

// isPlayedAtOnce is isPlayed for a test that waits long and computes little: its
// process starts before those that wait for their turn.
func isPlayedAtOnce(t *testing.T) bool {
	t.Helper()
	if os.Getenv(asPlayed) != "" {
		return false
	}
	ended := startPlayed(t)
	t.Parallel()
	ended()
	return true
}

// startPlayed starts the process that plays this test; the returned function waits for
// its end.
func startPlayed(t *testing.T) (ended func()) {
	t.Helper()
	args := []string{"-test.run=^" + strings.Replace(t.Name(), "/", "$/^", 1) + "$", "-test.v", "-update=" + strconv.FormatBool(*update)}
	if dir := os.Getenv("GOCOVERDIR"); dir != "" {
		args = append(args, "-test.gocoverdir="+dir) // counts its coverage in go test -cover
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asPlayed+"=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	must.Do(t, cmd.Start())
	return func() {
		t.Helper()
		if err := cmd.Wait(); err != nil || !bytes.Contains(out.Bytes(), []byte("--- PASS: "+t.Name()+" ")) {
			t.Errorf("%v\n%s", err, out.Bytes())
		}
	}
}

// play runs the commands of a script and returns it with their output.
func play(t *testing.T, script, dir string) string {
	t.Helper()
	var b strings.Builder
	var node offering
	defer node.offer(t, dir, "nothing")
	for line := range strings.Lines(script) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "# "), line == "" && b.Len() == 0:
			b.WriteString(line + "\n")
		case strings.HasPrefix(line, "$ "):
			if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n\n") && !lastIsComment(b.String()) {
				b.WriteString("\n")
			}
			b.WriteString(line + "\n")
			if words := split(strings.TrimPrefix(line, "$ ")); !node.command(t, words, dir) {
				b.WriteString(command(t, strings.TrimPrefix(line, "$ "), dir))
			}
		}
	}
	return b.String()
}

func lastIsComment(s string) bool {
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	return strings.HasPrefix(lines[len(lines)-1], "# ")
}

func command(t *testing.T, line, dir string) string {
	t.Helper()
	words := split(line)
	env := map[string]string{"HOME": dir}
	for len(words) > 0 && strings.Contains(words[0], "=") {
		k, v, _ := strings.Cut(words[0], "=")
		env[k], words = v, words[1:]
	}
	if words[0] == "git" {
		return gitCommand(t, words[1:], dir)
	}
	if words[0] == "sub" {
		data := must.Get(os.ReadFile(words[1]))(t)
		if !bytes.Contains(data, []byte(words[2])) {
			t.Fatalf("%s: %q is not in it", line, words[2])
		}
		must.Do(t, os.WriteFile(words[1], bytes.Replace(data, []byte(words[2]), []byte(words[3]), 1), 0o644))
		return ""
	}
	var in bytes.Buffer
	var args []string
	redirect := ""
	for i := 0; i < len(words); i++ {
		switch words[i] {
		case "<":
			i++
			data := must.Get(os.ReadFile(words[i]))(t)
			in.Write(data)
		case ">":
			i++
			redirect = words[i]
		default:
			args = append(args, words[i])
		}
	}
	var out, errs bytes.Buffer
	code := execute(args, &in, &out, &errs, func(name string) string { return env[name] })
	if redirect != "" {
		must.Do(t, os.WriteFile(redirect, out.Bytes(), 0o644))
		out.Reset()
	}
	var b strings.Builder
	b.WriteString(steady(out.String(), dir))
	if out.Len() > 0 && !strings.HasSuffix(out.String(), "\n") {
		b.WriteString("\n")
	}
	for l := range strings.Lines(steady(errs.String(), dir)) {
		b.WriteString(strings.TrimRight("> "+l, " \n") + "\n")
	}
	if code != 0 {
		b.WriteString("[exit " + strconv.Itoa(code) + "]\n")
	}
	return b.String()
}

// gitCommand runs git and returns its output.
func gitCommand(t *testing.T, args []string, dir string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C",
		"GIT_AUTHOR_NAME=ana", "GIT_AUTHOR_EMAIL=ana@localhost", "GIT_COMMITTER_NAME=ana", "GIT_COMMITTER_EMAIL=ana@localhost")
	out, err := cmd.CombinedOutput()
	text := steady(string(out), dir)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return text + "[exit " + strconv.Itoa(exit.ExitCode()) + "]\n"
	} else if err != nil {
		t.Fatalf("git %s: %v; install git", strings.Join(args, " "), err)
	}
	return text
}

// split cuts a command line into words; quotes group.
func split(line string) []string {
	var words []string
	var word strings.Builder
	quote, has := rune(0), false
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, has = r, true
		case r == ' ':
			if has || word.Len() > 0 {
				words = append(words, word.String())
			}
			word.Reset()
			has = false
		default:
			word.WriteRune(r)
		}
	}
	if has || word.Len() > 0 {
		words = append(words, word.String())
	}
	return words
}

// changing are the texts that differ between two runs, and the words for them.
var changing = []struct {
	re   *regexp.Regexp
	word string
}{
	{regexp.MustCompile(`run-[a-z2-7]{8}\.html`), "run-RUN.html"}, // before short ids: it may look like one
	{regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`), "UUID"},
	{regexp.MustCompile(`SHA256:[0-9A-Za-z+/]{43}`), "SHA256:KEY"},
	{regexp.MustCompile(`verify-time=\d{14}Z`), "verify-time=STAMP"},
	{regexp.MustCompile(`"ended":"[-0-9T:.]+Z"`), `"ended":"MOMENT"`},
	{regexp.MustCompile(`ssh-ed25519 [0-9A-Za-z+/=]{68}`), "ssh-ed25519 PUBLIC"},
	{regexp.MustCompile(`\b[0-9a-f]{20}-\d+-\d+\b`), "SESSION"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "HASH64"},
	{regexp.MustCompile(`\b[0-9a-f]{16}\b`), "HASH16"},
	{regexp.MustCompile(`\b[0-9a-f]{12}\b`), "HEAD"},
	{regexp.MustCompile(`\b[0-9a-f]{8}\b`), "SHORT_ID"},
	{regexp.MustCompile(`chain head [0-9a-f]{6}`), "chain head HASH"},
	{regexp.MustCompile(`files back to [0-9a-f]{6}`), "files back to HEAD"},
	{regexp.MustCompile(`\b[a-z2-7]{20}\b`), "RUN"},
	// The beginning of a run's id, in a table of runs. One in twelve has letters only.
	{regexp.MustCompile(`(?m)^[a-z2-7]{12}(  +(?:queued|running|waiting|needs_review|succeeded|failed|cancelled|timed_out)\b)`), "RUN$1"},
	{regexp.MustCompile(`(done +)[0-9.]+ m?s`), "${1}TIME"},
	{regexp.MustCompile(`until \d{4}-\d\d-\d\d[ \d:]*(UTC)?`), "until MOMENT"},
	{regexp.MustCompile(`\d\d:\d\d:\d\d(\.\d+)?`), "CLOCK"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d CLOCK \S+`), "TIME"},
	{regexp.MustCompile(`(?m)( +(now|\d+s)|  +\d+m)$`), " AGE"},
	{regexp.MustCompile(`(demo-fleet  \S+ +\S+ +\d+ +)2,\d+ `), "${1}N "}, // a call's milliseconds are words of the next prompt
	{regexp.MustCompile(`  (now|\d+[sm])  +`), "  AGE  "},
	{regexp.MustCompile(`[0-9,]+ tokens`), "N tokens"}, // results tell milliseconds
	{regexp.MustCompile(`\bn[A-Z2-7]{12}\b`), "NODE"},
	{regexp.MustCompile(`\bn[A-Z2-7]{7}\b`), "NODE____"}, // its beginning, in a table of runs
	{regexp.MustCompile(`(rates +over )[0-9.]+ s`), "${1}TIME"},
	{regexp.MustCompile(`pid \d+ +log`), "pid PID  log"},
	{regexp.MustCompile(`pid \d+`), "pid PID"},
	{regexp.MustCompile(`resumes on node \w after [0-9.]+ m?s`), "resumes on node OTHER after TIME"},
	{regexp.MustCompile(`(4 sessions  )\d+ commits`), "${1}N commits"},
	{regexp.MustCompile(`process \d+`), "process PID"},
	{regexp.MustCompile(`"elapsed_ms":\d+`), `"elapsed_ms":N`},
	{regexp.MustCompile(`, landlock\+seccomp|, process(\s)`), ", ISOLATION$1"},
	{regexp.MustCompile(`\((landlock\+seccomp|process)\)`), "(ISOLATION)"},
	{regexp.MustCompile(runtime.GOOS + "/" + runtime.GOARCH), "OS/ARCH"},
	{regexp.MustCompile(`go1\.\d+(\.\d+)?`), "GO"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dTCLOCK(\+00:00|Z)`), "TIME"},
	// The place where a run waits depends on the progress of its relay.
	{regexp.MustCompile(`(?m)^(\S+ +queued .*  AGE  )(place \d|node \w+ was sent|no node |a node did).*$`), "${1}QUEUE"},
	{regexp.MustCompile(`\b\d{8}T\d{6}Z\b`), "STAMP"}, // in the name of an archive
	{regexp.MustCompile(`the fullest is \S+, \d+ %`), "the fullest is STREAM, N %"},
	{regexp.MustCompile(`used \S+ ago`), "used AGE ago"},
	{regexp.MustCompile(`answers in [0-9.]+ m?s`), "answers in TIME"},
	{regexp.MustCompile(`(?m)^((?:default|host) .* )\d+/64\b`), "${1}N/64"}, // an entry is renewed while a run is at work
	{regexp.MustCompile(`[0-9,]+ bytes of commits`), "N bytes of commits"},  // they hold milliseconds
	{regexp.MustCompile(`(?m)^(\S+ +default +\d+ +)[0-9,]+ +AGE +`), "${1}N  AGE  "},
	{regexp.MustCompile(`"node":"\w+"`), `"node":"NODE"`},
	{regexp.MustCompile(`"(ended_ms|elapsed_ms|submitted_ms|started_ms|time|time_ms)": ?\d+`), `"$1":0`},
}

// whose matches the names of nodes that took work, which differ from run to run.
var whose = regexp.MustCompile(`(?m)(  on node |^kill -9     node )([a-z])\b`)

// letters renames the nodes that took work to p, q and r, in the order in which they
// appear.
func letters(s string) string {
	names := map[string]string{}
	return whose.ReplaceAllStringFunc(s, func(m string) string {
		old := m[len(m)-1:]
		if names[old] == "" {
			names[old] = string(rune('p' + len(names)))
		}
		return m[:len(m)-1] + names[old]
	})
}

// steady replaces texts that differ between two runs.
func steady(s, dir string) string {
	s = letters(strings.ReplaceAll(s, dir, "DIR"))
	for _, c := range changing {
		s = c.re.ReplaceAllString(s, c.word)
	}
	return timed.ReplaceAllStringFunc(s, func(line string) string {
		return strings.TrimRight(blanks.ReplaceAllString(took.ReplaceAllString(line, ""), "  "), " ")
	})
}

// The rows of tables of steps and of spending have times, on which the widths of their
// columns depend.
var (
	timed  = regexp.MustCompile(`(?m)^(N  +SESSION| *\d+  +s\d+  |AGENT  +MODEL OR TOOL|(agent|workflow)  +\S+  +\d+  |took ).*$`)
	took   = regexp.MustCompile(`\b(\d+(\.\d+)? m?s|\d+m\d+s)\b`)
	blanks = regexp.MustCompile(` {2,}`)
)

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		line := func(l []string) string {
			if i < len(l) {
				return l[i]
			}
			return "(the end)"
		}
		if line(g) != line(w) {
			return "line " + strconv.Itoa(i+1) + "\n got: " + line(g) + "\nwant: " + line(w)
		}
	}
	return ""
}

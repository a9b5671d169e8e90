//go:build unix

package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/llm/scripted"
)

// stuckScript scripts a model that hangs, one over its rate limit, and calls of a tool.
const stuckScript = `-- hangs --
user: hang
fault: hang

nothing
-- stalls --
user: stall
fault: stall

The first half of a long answer, and the second half of it, which does not come.
-- over its rate --
user: limit
code: rate_limited
retry-after: 60s

too many requests
-- calls --
user: call
not result: run_shell_command
call: run_shell_command {"cmd":"sleep 300"}

-- rest --
echo: true
`

// spans matches the durations of activities in progress.
var spans = regexp.MustCompile(`\d+(\.\d+)? m?s\b|\d+m\d+s|node +[abc],`)

// TestWhyIsItStuck asks with one command, over the server as a client without
// credentials and at the store, why runs on three nodes are stuck.
func TestWhyIsItStuck(t *testing.T) {
	if isPlayed(t) {
		return
	}
	dir := t.TempDir()
	t.Chdir(dir)
	script := must.Get(scripted.Parse("stuck", []byte(stuckScript)))(t)
	model := must.Get(scripted.New(script, nil))(t)
	srv := httptest.NewServer(model)
	defer srv.Close()
	defer srv.CloseClientConnections() // of answers that hang
	host := strings.TrimPrefix(srv.URL, "http://")
	must.Do(t, os.MkdirAll("files", 0o755))
	port := strconv.Itoa(natstest.FreePort(t))
	dev := startCommandIn(t, dir, []string{"RATH_SLOTS=2", "RATH_MODEL=m1", "OPENAI_API_KEY=x", "OPENAI_BASE_URL=" + srv.URL + "/v1"},
		"dev", "--nodes", "3", "--unsafe", "--port", port)
	waitFor(t, func() bool { return strings.Contains(dev.said(), "try  ") })
	rath := func(line string) string { return command(t, "rath "+line, dir) }
	elsewhere := t.TempDir()
	client := func(line string) string {
		t.Helper()
		return command(t, "rath --server nats://127.0.0.1:"+port+" --store "+filepath.Join(elsewhere, "none")+" "+line, dir)
	}
	for _, line := range []string{
		`submit agent --id hangs -m hang`, `submit agent --id stalls -m stall`, `submit agent --id limited -m limit`, `submit agent --id sleeps -C files -m call`,
		`submit agent --id asks -C files -m '{"prompt":"call","approve":["*"]}'`,
	} {
		rath(line)
	}
	waitFor(t, func() bool {
		ps := client("ps")
		return strings.Contains(ps, "for approval") && strings.Contains(ps, "sleep 300") && strings.Contains(ps, "pauses") && strings.Contains(ps, "agent asks m1, ") && strings.Contains(ps, " tokens")
	})
	for _, id := range []string{"q1", "q2", "q3", "q4"} { // two of them have the last slots
		client("submit agent --id " + id + " -m hang")
		waitFor(t, func() bool { return regexp.MustCompile(id + ` +(running|queued)`).MatchString(client("ps")) })
	}
	waitFor(t, func() bool { return strings.Contains(client("why q4"), "place 2 of 2") })
	for id, want := range map[string]string{
		"hangs": `run      hangs of agent, running
NODE attempt 1
step     0, agent asks m1, for SPAN
now      nothing of the answer has come for SPAN; it is given up in SPAN
`,
		"stalls": `run      stalls of agent, running
NODE attempt 1
step     0, agent asks m1, for SPAN
now      the model writes, N tokens so far; the last piece came SPAN ago
  The first half of a long answer, and
`,
		"limited": `run      limited of agent, running
NODE attempt 1
step     0, agent asks m1, for SPAN
now      waits SPAN, then try 2
before   try 1 failed: llm: rate_limited: model "m1" at HOST: HTTP
         429: too many requests
`,
		"sleeps": `run      sleeps of agent, running
NODE attempt 1
step     0.0, run_shell_command: sleep 300, for SPAN
now      it runs
`,
		"asks": `run      asks of agent, waiting
waits    for approval: run run_shell_command? (until MOMENT), at
         step 0.0.approval
answer   rath answer asks yes
`,
		"q4": `run      q4 of agent, queued
waits    for a slot of pool default (interactive): place 2 of 2; all slots of
         its 3 nodes are taken
`,
	} {
		for where, ask := range map[string]func(string) string{"over the server": client, "at the store": rath} {
			got, _, _ := strings.Cut(ask("why "+id), "\n\n")
			got = spans.ReplaceAllStringFunc(got+"\n", func(s string) string {
				switch {
				case strings.HasPrefix(s, "node"):
					return "NODE"
				}
				return "SPAN"
			})
			got = strings.ReplaceAll(got, host, "HOST")
			if where == "over the server" { // hints name the server there
				got = regexp.MustCompile(`answer asks yes --store \S+ --server \S+`).ReplaceAllString(got, "answer asks yes")
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("why %s %s (-want +got):\n%s", id, where, diff)
			}
		}
	}
	if got := client("show stalls"); !strings.Contains(got, "The first half of a long answer, and") {
		t.Errorf("show of a run whose model writes:\n%s", got)
	}
	if got := client("ps --limit 2"); !strings.Contains(got, "2 of 9 runs that were submitted; --limit 0 lists all") {
		t.Errorf("ps that leaves rows out:\n%s", got)
	}
	client("cancel --where 'not state=succeeded'") // the nodes need not wait for them
	if code := dev.interrupt(); code != app.ExitOK {
		t.Errorf("dev: exit %d", code)
	}
}

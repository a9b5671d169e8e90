package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/evidence/audit"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// echoes is the environment of command lines whose model repeats its input.
var echoes = map[string]string{"RATH_MODEL": "echo"}

// rath runs a command line in the present directory.
func rath(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(append([]string{"rath"}, args...), strings.NewReader(""), &out, &errs, func(name string) string { return echoes[name] })
	return code, out.String(), errs.String()
}

// TestAudit audits the store of the demo, its dump, and a dump that was changed.
func TestAudit(t *testing.T) {
	if isPlayed(t) {
		return
	}
	t.Chdir(t.TempDir())
	if code, _, errs := rath(t, "cluster", "audit"); code != app.ExitNotFound || !strings.Contains(errs, "--server") {
		t.Errorf("without a store: exit %d, %s", code, errs)
	}
	if code, _, errs := rath(t, "demo", "--quiet"); code != 0 {
		t.Fatalf("demo: exit %d: %s", code, errs)
	}
	code, out, errs := rath(t, "cluster", "audit", "--dump", "all.jsonl")
	if code != 0 || !strings.Contains(out, "every promise was kept") || errs != "" {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	for line := range strings.Lines(out) {
		if term.Width(strings.TrimRight(line, "\n")) > 80 {
			t.Errorf("wider than 80 columns: %s", line)
		}
	}
	if info, err := os.Stat("all.jsonl"); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("the dump is readable by others: %v %v", info.Mode(), err)
	}
	if code, again, _ := rath(t, "cluster", "audit", "all.jsonl"); code != 0 || again != out {
		t.Errorf("the dump: exit %d\n%s", code, again)
	}

	spoil(t, "all.jsonl", "spoilt.jsonl", "run.ended", `"state":"succeeded"`, `"state":"cancelled"`)
	code, out, _ = rath(t, "cluster", "audit", "spoilt.jsonl", "--format", "json")
	var report audit.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != app.ExitFailed || report.OK() {
		t.Errorf("exit %d, error %v\n%s", code, err, out)
	}
	code, out, errs = rath(t, "cluster", "audit", "spoilt.jsonl")
	if code != app.ExitFailed || !strings.Contains(out, "results: ") || !strings.Contains(out, "BROKEN") || !strings.Contains(errs, "each result agrees") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}

	write := func(name, text string) string {
		must.Do(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"all.jsonl", "--secret", write("keys", "\n  slug.sh \nother\n")}, app.ExitFailed, "number 1 of those given"},
		{[]string{"all.jsonl", "--clients", write("told", `{"op":"submit","run":"lost"}`)}, app.ExitFailed, "run lost, of which the submit was acknowledged"},
		{[]string{"all.jsonl", "--tenant", "other"}, app.ExitOK, "0 commits"},
		{[]string{"all.jsonl", "--tools", write("bad", "x\n")}, app.ExitUsage, "line 1"},
		{[]string{"all.jsonl", "--tools", "nowhere"}, app.ExitNotFound, "nowhere"},
		{[]string{write("junk", "hello\n")}, app.ExitUsage, "no dump"},
		{[]string{filepath.Join("no", "where")}, app.ExitNotFound, "no"},
		{[]string{"a", "b"}, app.ExitUsage, "one dump at most"},
		{[]string{"all.jsonl", "--dump", filepath.Join(".", "all.jsonl")}, app.ExitUsage, "name another file"},
		{[]string{"all.jsonl"}, app.ExitOK, "every promise was kept"}, // it is still there
	} {
		code, out, errs := rath(t, append([]string{"cluster", "audit"}, c.args...)...)
		if code != c.code || !strings.Contains(out+errs, c.want) {
			t.Errorf("%v: exit %d, want %d and %q\n%s%s", c.args, code, c.code, c.want, out, errs)
		}
	}
}

// spoil changes the last message of a dump that holds a word.
func spoil(t *testing.T, from, to, word, old, by string) {
	t.Helper()
	file := must.Get(os.Open(from))(t)
	defer file.Close()
	var all []audit.Message
	last := -1
	for m, err := range audit.ReadDump(file) {
		must.Do(t, err)
		if bytes.Contains(m.Data, []byte(word)) && strings.HasPrefix(m.Stream, "EV_") {
			last = len(all)
		}
		all = append(all, m)
	}
	if last < 0 || !bytes.Contains(all[last].Data, []byte(old)) {
		t.Fatalf("no %s with %s", word, old)
	}
	all[last].Data = bytes.Replace(all[last].Data, []byte(old), []byte(by), 1)
	made := must.Get(os.Create(to))(t)
	defer made.Close()
	w := audit.NewWriter(made)
	for _, m := range all {
		must.Do(t, w.Write(m))
	}
	must.Do(t, w.Flush())
}

// TestAuditOfSomeStreams: missing streams are named and are no violation, and have an
// exit code of their own; also in a dump.
func TestAuditOfSomeStreams(t *testing.T) {
	if isPlayed(t) {
		return
	}
	dir := t.TempDir()
	_, js := startOperated(t, dir)
	s := must.Get(js.Stream(t.Context(), "EV_1_0"))(t)
	cfg := s.CachedInfo().Config
	cfg.Metadata["rath-partitions"] = "2" // as if there had been another one
	must.Get(js.UpdateStream(t.Context(), cfg))(t)
	missing := []string{"EV_1_1", streams.StreamLineage, streams.StreamResult}
	for _, name := range missing[1:] {
		must.Do(t, js.DeleteStream(t.Context(), name))
	}
	code, out, errs := rath(t, "cluster", "audit", "--open", "--dump", "some.jsonl")
	if code != app.ExitPartial || !strings.Contains(out, "missing, so not checked: "+strings.Join(missing, ", ")+"\n") || !strings.Contains(out, "as far as can be checked") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	for _, args := range [][]string{{"cluster", "audit", "--open", "--format", "json"}, {"cluster", "audit", "--open", "--format", "json", "some.jsonl"}} {
		code, out, errs = rath(t, args...)
		var report audit.Report
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatalf("%v: %v\n%s%s", args, err, out, errs)
		}
		want := missing
		if len(args) > 5 { // the absence of an event stream from a dump goes unnoticed
			want = missing[1:]
		}
		if code != app.ExitPartial || !report.OK() || !slices.Equal(report.Missing, want) {
			t.Errorf("%v: exit %d, missing %v, want %v and no violation\n%s", args, code, report.Missing, want, out)
		}
	}
}

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/node"
)

// TestTasksOverServer submits the tasks of a file with a client's credentials: tasks
// with the same body once, and another body under a used id as a conflict.
func TestTasksOverServer(t *testing.T) {
	if isPlayed(t) {
		return
	}
	dir := t.TempDir()
	dev, url := startDev(t, t.TempDir())
	t.Chdir(dir)
	for name, text := range map[string]string{
		"tasks.jsonl": `{"id":"a","input":"one"}` + "\n" + `{"input":"two"}` + "\n",
		"other.jsonl": `{"id":"a","input":"other"}` + "\n" + `{"id":"b","input":"three"}` + "\n",
		"wrong.jsonl": `{"id":"a","input":"other"}` + "\n{}x\n",
		"many.jsonl":  strings.Repeat("{}x\n", 2000),
	} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for _, c := range []struct{ args, want string }{
		{"--tasks tasks.jsonl", "2 tasks submitted\n"},
		{"--tasks tasks.jsonl", "1 task submitted, 1 there already\n"},
		{"--tasks other.jsonl", "1 line not submitted\n[exit 4]"},
		{"--tasks wrong.jsonl", "2 lines not submitted\n[exit 6]"},
		{"--tasks many.jsonl", "and 1,980 more lines up to line 2000; --format jsonl names each\n> 0 tasks submitted\n> rath: 2,000 lines not submitted\n[exit 2]"},
		{"--tenant a --tenant b -m one", "\"a\" was given as well: repeat the command for each"},
		{"--id a -m one", "run a exists already"},
		{"--id a -m other", "task a: this id was used for another task; choose another id, or send the same body\n[exit 4]"},
	} {
		if got := command(t, "rath --server "+url+" submit agent "+c.args, dir); !strings.Contains(got, c.want) {
			t.Errorf("$ rath submit agent %s\n%swant %q", c.args, got, c.want)
		}
	}
	dev.interrupt()
}

// Limits of submitting a file, at a node that runs and takes the tasks meanwhile.
const (
	manyTasks   = 1000
	tasksWithin = 2 * time.Second
)

// BenchmarkSubmitTasks fails if the tasks of a file take longer than their limit.
func BenchmarkSubmitTasks(b *testing.B) {
	dir := b.TempDir()
	b.Chdir(dir)
	n := must.Get(node.Start(b.Context(), &node.Options{Store: dir, NATS: node.NATS{Port: -1}, Workflows: []flow.Registration{{
		Name: "none", Revision: "1", New: func() flow.Workflow { return flow.Sequence() },
	}}}))(b)
	defer n.Close()
	for round := 0; b.Loop(); round++ {
		b.StopTimer()
		var text strings.Builder
		for i := range manyTasks {
			fmt.Fprintf(&text, "{\"id\":\"t%d-%d\",\"input\":\"task %d\"}\n", round, i, i)
		}
		must.Do(b, os.WriteFile("tasks.jsonl", []byte(text.String()), 0o600))
		b.StartTimer()
		var out, errs strings.Builder
		if code := execute(strings.Fields("rath submit none --tasks tasks.jsonl --server "+n.URL()), strings.NewReader(""), &out, &errs, func(string) string { return "" }); code != 0 {
			b.Fatalf("exit %d: %s", code, errs.String())
		}
	}
	if own := b.Elapsed() / time.Duration(b.N); own > tasksWithin {
		b.Errorf("%d tasks take %s, want at most %s", manyTasks, own, tasksWithin)
	}
}

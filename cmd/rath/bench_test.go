package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBench measures a fleet that is started for the purpose.
func TestBench(t *testing.T) {
	if isPlayed(t) {
		return
	}
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("NATS_URL", "")
	t.Setenv("TMPDIR", dir)
	t.Setenv(asCommand, "1") // for the nodes
	var r struct {
		Workflow  string `json:"workflow"`
		Succeeded int    `json:"succeeded"`
		Elapsed   int64  `json:"elapsed_us"`
		Claim     struct {
			N int `json:"n"`
		} `json:"claim"`
		End struct {
			N   int   `json:"n"`
			Min int64 `json:"min_us"`
		} `json:"end"`
		Lag *struct {
			Samples int `json:"samples"`
		} `json:"lag"`
		CPU []struct {
			Name string `json:"name"`
			PID  int    `json:"pid"`
		} `json:"cpu"`
	}
	var out, errs bytes.Buffer
	args := strings.Fields("rath cluster bench --nodes 2 --tasks 6 --in-flight 3 --fanout 2 --model-latency 40ms --level lazy -q --format json")
	if code := execute(args, strings.NewReader(""), &out, &errs, func(string) string { return "" }); code != 0 || errs.Len() > 0 {
		t.Fatalf("exit %d, %s", code, errs.String())
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v:\n%s", err, out.String())
	}
	if r.Workflow != "fanout" || r.Succeeded != 6 || r.End.N != 6 || r.Claim.N != 6 || r.Elapsed < 40_000 || r.Lag == nil {
		t.Errorf("got %+v, want 6 runs of fanout, and the lag", r)
	}
	if r.End.Min < 40_000 {
		t.Errorf("a run ended after %d µs, before its model had answered", r.End.Min)
	}
	var names []string
	for _, p := range r.CPU {
		names = append(names, p.Name)
	}
	if got := strings.Join(names, ", "); got != "node a, node b, this process" {
		t.Errorf("processes %s", got)
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "rath-bench-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}

	for line, want := range map[string]string{
		"--nodes 99":           "want a number from 1 to 26",
		"--nodes 2 --server x": "omit --server",
		"--model-latency 3s":   "needs --nodes",
		"--nodes 1 --tasks 0":  "--tasks 0: want",
		"--in-flight 1000000":  "--in-flight 1000000: want",
		"--rate -1":            "--rate -1: want",
		"--duration 0s":        "--duration 0s: want",
		"--fanout 2000":        "--fanout 2000: want",
		"--input {":            "want JSON",
		"--pid x=y":            "want PID or NAME=PID",
	} {
		if got := command(t, "rath cluster bench "+line, dir); !strings.Contains(got, want) || !strings.Contains(got, "[exit 2]") {
			t.Errorf("$ rath cluster bench %s\n%swant %q and exit code 2", line, got, want)
		}
	}
	if got := command(t, "rath cluster bench --nodes 1 --workflow nobody", dir); !strings.Contains(got, `unknown workflow "nobody"`) {
		t.Errorf("an unknown workflow: %s", got)
	}
}

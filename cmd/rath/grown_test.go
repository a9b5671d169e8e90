package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/cmd/rath/internal/evidence"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestImportOfWhatWentOn imports a file of OpenRath whose session continued there since
// it was imported. The import matches the file, or fails as a whole.
func TestImportOfWhatWentOn(t *testing.T) {
	if isPlayed(t) {
		return
	}
	t.Chdir(t.TempDir())
	write := func(rows ...string) {
		t.Helper()
		var b strings.Builder
		b.WriteString(`{"record_type": "header", "schema_version": 1, "id": "grows", "created_at": "", "parent_session_ids": [], "lineage_operator": "o", "lineage_kind": "k", "lineage_extras": [], "sandbox_backend": null, "sandbox_spec": null, "sandbox_handle_id": null}` + "\n")
		for i, row := range rows {
			fmt.Fprintf(&b, `{"record_type": "chunk", "index": %d, "kind": "user", "payload": {"content": %q}}`+"\n", i, row)
		}
		must.Do(t, os.WriteFile("s.jsonl", []byte(b.String()), 0o600))
	}
	take := func() (got evidence.Imported) {
		t.Helper()
		_, out, errs := rath(t, "cluster", "import", "s.jsonl", "--format", "jsonl")
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatalf("%v: %s%s", err, out, errs)
		}
		return got
	}
	has := func(id string) (rows []string) {
		t.Helper()
		code, out, errs := rath(t, "export", id)
		if code != 0 {
			t.Fatalf("export: exit %d: %s", code, errs)
		}
		for line := range strings.Lines(out) {
			var r struct {
				Payload struct{ Content string }
				Kind    string
			}
			must.Do(t, json.Unmarshal([]byte(line), &r))
			if r.Kind != "" {
				rows = append(rows, r.Payload.Content[:min(len(r.Payload.Content), 10)])
			}
		}
		return rows
	}
	write("one", "two")
	first := take()
	if first.Error != "" || first.Rows != 2 {
		t.Fatalf("%+v", first)
	}
	write("one", "two", "three", strings.Repeat("4", commitlog.MaxBatch))
	if got := take(); got.Error != "" || got.Session != first.Session || got.Note != "" || got.Rows != 4 {
		t.Errorf("the file went on: %+v", got)
	}
	want := []string{"one", "two", "three", "4444444444"}
	if got := has(string(first.Session)); !slices.Equal(got, want) {
		t.Errorf("the session has %q, want %q", got, want)
	}
	if got := take(); got.Error != "" || got.Note != "was there already" {
		t.Errorf("again: %+v", got)
	}
	// It continues here; the same file adds nothing, a longer one would diverge.
	if code, _, errs := rath(t, "run", "-m", "five", "--session", string(first.Session), "-q"); code != 0 {
		t.Fatalf("run: exit %d: %s", code, errs)
	}
	if got := take(); got.Error != "" || got.Note != "was there already" {
		t.Errorf("the same file: %+v", got)
	}
	here := has(string(first.Session))
	write("one", "two", "three", strings.Repeat("4", commitlog.MaxBatch), "else", strings.Repeat("5", commitlog.MaxBatch), strings.Repeat("6", commitlog.MaxBatch), strings.Repeat("7", commitlog.MaxBatch), strings.Repeat("8", commitlog.MaxBatch))
	if got := take(); !strings.Contains(got.Error, "went on here") {
		t.Errorf("both went on: %+v", got)
	}
	write("one", "other", "three", strings.Repeat("4", commitlog.MaxBatch))
	if got := take(); !strings.Contains(got.Error, "another") {
		t.Errorf("another file of the same id: %+v", got)
	}
	if got := has(string(first.Session)); !slices.Equal(got, here) {
		t.Errorf("the session has %q, want %q", got, here)
	}
}

// TestImportOfManyRows: an import uses as many commits as its rows need, however short
// they are, and the cost of a row does not depend on their number.
func TestImportOfManyRows(t *testing.T) {
	if isPlayed(t) {
		return
	}
	const rows = 20_000
	t.Chdir(t.TempDir())
	var b strings.Builder
	b.WriteString(`{"record_type": "header", "schema_version": 1, "id": "long", "created_at": "", "parent_session_ids": [], "lineage_operator": "o", "lineage_kind": "k", "lineage_extras": [], "sandbox_backend": null, "sandbox_spec": null, "sandbox_handle_id": null}` + "\n")
	for i := range rows {
		fmt.Fprintf(&b, `{"record_type": "chunk", "index": %d, "kind": "user", "payload": {"content": "%d"}}`+"\n", i, i)
	}
	must.Do(t, os.WriteFile("s.jsonl", []byte(b.String()), 0o600))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	code, out, errs := rath(t, "cluster", "import", "s.jsonl", "--format", "jsonl")
	runtime.ReadMemStats(&after)
	var got evidence.Imported
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || got.Rows != rows || got.Error != "" {
		t.Fatalf("exit %d, %+v, %v: %s", code, got, err, errs)
	}
	const bar = 32 << 10
	if perRow := (after.TotalAlloc - before.TotalAlloc) / rows; perRow > bar {
		t.Errorf("a row takes %d B, want at most %d", perRow, bar)
	} else {
		t.Logf("a row takes %d B", perRow)
	}
}

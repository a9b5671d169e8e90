package sandboxtest

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

var update = flag.Bool("update", false, "write docs/internals/hostile.md")

const aboutTable = `# Hostile inputs

This page lists the attempts of hostile commands and their outcomes. Each cell is measured: the
suite of all drivers (` + "`sandbox/sandboxtest`" + `) compares the outcome with the driver's column,
` + "`testdata/hostile.<isolation>.txt`" + ` beside its tests, and ` + "`go test -update`" + ` there writes it. A
driver with fewer features on some host is measured by these features.

` + "`oom`" + `, ` + "`disk_full`" + `, ` + "`deadline`" + `, ` + "`cancelled`" + ` and ` + "`not_started`" + ` are ends of a command
(` + "`sandbox.End`" + `), as are ` + "`exited`" + ` and ` + "`signaled`" + ` with the code. ` + "`refused`" + ` has the system's error.
` + "`ErrPath`" + ` is the error of the sandbox's files. For *not offered* the driver returns an error
before a sandbox opens. The opensandbox column uses a stand-in server with processes of this
host, and shows the confinement by the daemon. The kubernetes column uses pods of a real control
plane, which the test's machine runs in separate namespaces, cgroups and a separate root, with
the network of this host.

This page is written by ` + "`go test ./sandbox/sandboxtest -update`" + `.

`

// column is the content of one file.
type column struct {
	file string // slash separated, from the top of the repository
	rows map[string]string
	list []string // its inputs, in order
}

// columns reads each file of ends in the repository.
func columns(t *testing.T) []column {
	t.Helper()
	top := os.DirFS(filepath.Join("..", ".."))
	var all []column
	for _, pattern := range []string{"*/testdata/hostile*.txt", "*/*/testdata/hostile*.txt", "*/*/*/testdata/hostile*.txt"} {
		names := must.Get(fs.Glob(top, pattern))(t)
		for _, name := range names {
			rows := must.Get(readRows(filepath.Join("..", "..", filepath.FromSlash(name))))(t)
			c := column{file: name, rows: make(map[string]string)}
			for _, r := range rows {
				c.rows[r[0]] = r[1]
				c.list = append(c.list, r[0])
			}
			all = append(all, c)
		}
	}
	return all
}

// TestHostileTable prints the columns of all drivers side by side, and fails if a driver
// has no end for an input, or an end for an unknown input.
func TestHostileTable(t *testing.T) {
	var b strings.Builder
	b.WriteString(aboutTable)
	var drivers, others []column
	for _, c := range columns(t) {
		if strings.HasSuffix(c.file, "/hostile.txt") {
			others = append(others, c)
		} else {
			drivers = append(drivers, c)
		}
	}
	if len(drivers) < 4 || len(others) == 0 {
		t.Fatalf("only %d columns and %d other files are there", len(drivers), len(others))
	}
	b.WriteString("| a command may")
	for _, d := range drivers {
		driver, file, _ := strings.Cut(strings.TrimPrefix(d.file, "sandbox/"), "/testdata/hostile.")
		fmt.Fprintf(&b, " | %s, %s", driver, strings.TrimSuffix(file, ".txt"))
	}
	b.WriteString(" |\n|---" + strings.Repeat("|---", len(drivers)) + "|\n")
	for _, i := range inputs {
		b.WriteString("| " + i.input)
		for _, d := range drivers {
			end, ok := d.rows[i.input]
			if !ok {
				t.Errorf("%s says nothing of %q; go test its package with -update", d.file, i.input)
			}
			if why, ok := strings.CutPrefix(end, notOffered); ok {
				end = "*not offered*: " + why
			}
			b.WriteString(" | " + end)
		}
		b.WriteString(" |\n")
	}
	for _, d := range drivers {
		if i := slices.IndexFunc(d.list, func(in string) bool {
			return !slices.ContainsFunc(inputs, func(i struct{ input, check string }) bool { return i.input == in })
		}); i >= 0 {
			t.Errorf("%s has the row %q, which the suite does not try", d.file, d.list[i])
		}
	}
	b.WriteString("\nThe same with each driver, because it happens outside of the sandbox:\n\n| a command may | it ends | measured by the tests of |\n|---|---|---|\n")
	for _, o := range others {
		for _, input := range o.list {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", input, o.rows[input], strings.TrimSuffix(o.file, "/testdata/hostile.txt"))
		}
	}
	name := filepath.Join("..", "..", "docs", "internals", "hostile.md")
	if *update {
		must.Do(t, os.WriteFile(name, []byte(b.String()), 0o644))
	}
	if want, err := os.ReadFile(name); err != nil || string(want) != b.String() {
		t.Errorf("%s differs (go test ./sandbox/sandboxtest -update writes it): %v\n%s", name, err, b.String())
	}
}

// TestInputs: each input belongs to a check, once.
func TestInputs(t *testing.T) {
	seen := make(map[string]bool)
	for _, i := range inputs {
		if seen[i.input] || len(i.input) > rowWidth {
			t.Errorf("%q is there twice or is longer than %d", i.input, rowWidth)
		}
		seen[i.input] = true
		if !slices.ContainsFunc(checks, func(c check) bool { return c.name == i.check }) {
			t.Errorf("the suite has no check %q", i.check)
		}
	}
}

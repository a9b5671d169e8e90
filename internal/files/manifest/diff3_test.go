package manifest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// edit makes a side of a base whose lines all differ. Both sides insert lines from a small
// set per place, so that they sometimes agree.
func edit(r *rand.Rand, side string, base []string) []string {
	var out []string
	often := 1 + r.IntN(12)
	for i, l := range append(slices.Clone(base), "") {
		if r.IntN(often) == 0 {
			for n := range 1 + r.IntN(2) {
				who := side
				if r.IntN(3) == 0 {
					who = "both"
				}
				out = append(out, fmt.Sprintf("%s %d %d\n", who, i, n))
			}
		}
		if l != "" && r.IntN(often) != 0 {
			out = append(out, l)
		}
	}
	return out
}

// naive merges texts in which no line stands twice or moves, by the textbook: lines that
// all three have are where the texts meet, and between two of them one side, or both in
// the same way, may have changed something.
func naive(base, ours, theirs []string) (merged []string, conflicts int) {
	inAll := func(l string) bool { return slices.Contains(ours, l) && slices.Contains(theirs, l) }
	take := func(text *[]string, to string) []string {
		i := slices.Index(*text, to)
		if to == "" {
			i = len(*text)
		}
		part := (*text)[:i]
		*text = (*text)[min(i+1, len(*text)):]
		return part
	}
	for _, l := range append(slices.Clone(base), "") {
		if l != "" && !inAll(l) {
			continue
		}
		b, o, t := take(&base, l), take(&ours, l), take(&theirs, l)
		switch {
		case slices.Equal(o, b):
			merged = append(merged, t...)
		case slices.Equal(t, b), slices.Equal(o, t):
			merged = append(merged, o...)
		default:
			conflicts++
			merged = append(merged, o...)
		}
		if l != "" {
			merged = append(merged, l)
		}
	}
	return merged, conflicts
}

// resolved takes one side where there is a conflict.
func resolved(regions []Region, side func(Region) []string) (out []string, conflicts int) {
	for _, r := range regions {
		if r.Conflict {
			conflicts++
			out = append(out, side(r)...)
			continue
		}
		out = append(out, r.Merged()...)
	}
	return out, conflicts
}

func ofOurs(r Region) []string   { return r.Ours }
func ofTheirs(r Region) []string { return r.Theirs }

func TestMerge3AgainstNaiveModel(t *testing.T) {
	clean := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 3))
		var base []string
		for i := range r.IntN(20) {
			base = append(base, fmt.Sprintf("line %d\n", i))
		}
		ours, theirs := edit(r, "ours", base), edit(r, "theirs", base)
		got, n := resolved(Merge3(base, ours, theirs), ofOurs)
		want, wantN := naive(base, ours, theirs)
		if !slices.Equal(got, want) || n != wantN {
			t.Fatalf("seed %d: of %q\n%q\n%q\ncame %d conflicts, %q\n want %d, %q", seed, base, ours, theirs, n, got, wantN, want)
		}
		if n == 0 {
			clean++
		}
	}
	if clean < 500 || clean > 2500 {
		t.Errorf("%d of 3000 merges had no conflict: the texts are no test", clean)
	}
}

// TestMerge3 holds of all texts, also where lines stand several times.
func TestMerge3(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	text := func() []string {
		lines := make([]string, r.IntN(12))
		for i := range lines {
			lines[i] = string(rune('a'+r.IntN(4))) + "\n"
		}
		return lines
	}
	for range 20_000 {
		base, ours, theirs := text(), text(), text()
		regions := Merge3(base, ours, theirs)
		var b, o, z []string
		for _, g := range regions {
			b, o, z = append(b, g.Base...), append(o, g.Ours...), append(z, g.Theirs...)
			if g.Conflict && (slices.Equal(g.Ours, g.Theirs) || slices.Equal(g.Ours, g.Base) && slices.Equal(g.Theirs, g.Base)) {
				t.Fatalf("%q, %q, %q: no conflict is %+v", base, ours, theirs, g)
			}
			if !g.Conflict && !slices.Equal(g.Ours, g.Base) && !slices.Equal(g.Theirs, g.Base) && !slices.Equal(g.Ours, g.Theirs) {
				t.Fatalf("%q, %q, %q: a conflict is %+v", base, ours, theirs, g)
			}
		}
		if !slices.Equal(b, base) || !slices.Equal(o, ours) || !slices.Equal(z, theirs) {
			t.Fatalf("%q, %q, %q: the regions cover %q, %q, %q", base, ours, theirs, b, o, z)
		}
		got, n := resolved(regions, ofOurs)
		swapped, m := resolved(Merge3(base, theirs, ours), ofTheirs)
		if n != m || !slices.Equal(got, swapped) {
			t.Fatalf("%q, %q, %q: %d conflicts, swapped %d: %q and %q", base, ours, theirs, n, m, got, swapped)
		}
		for _, c := range []struct{ base, ours, theirs, want []string }{{base, base, ours, ours}, {base, ours, base, ours}, {base, ours, ours, ours}} {
			if got, n := resolved(Merge3(c.base, c.ours, c.theirs), ofOurs); n != 0 || !slices.Equal(got, c.want) {
				t.Fatalf("%q, %q, %q: %d conflicts, %q", c.base, c.ours, c.theirs, n, got)
			}
		}
	}
}

// TestMerge3AgainstGit: git merge-file has the same result, with either side favoured.
func TestMerge3AgainstGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Fatal("this test compares with git merge-file: install git")
	}
	dir := t.TempDir()
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 4))
		var base []string
		for i := range r.IntN(60) {
			base = append(base, fmt.Sprintf("line %d\n", i))
		}
		ours, theirs := edit(r, "ours", base), edit(r, "theirs", base)
		regions := Merge3(base, ours, theirs)
		_, conflicts := resolved(regions, ofOurs)
		for name, lines := range map[string][]string{"base": base, "ours": ours, "theirs": theirs} {
			must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(strings.Join(lines, "")), 0o600))
		}
		file := func(args ...string) (string, int) {
			cmd := exec.Command("git", append(append([]string{"merge-file", "-p", "-q"}, args...), "ours", "base", "theirs")...)
			cmd.Dir = dir
			out, err := cmd.Output()
			if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() < 128 {
				return string(out), exit.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			return string(out), 0
		}
		merged, n := file()
		if (n > 0) != (conflicts > 0) {
			t.Fatalf("seed %d: %d conflicts, git has %d\n%s", seed, conflicts, n, merged)
		}
		for _, c := range []struct {
			option string
			side   func(Region) []string
		}{{"--ours", ofOurs}, {"--theirs", ofTheirs}} {
			want, _ := file(c.option)
			if got, _ := resolved(regions, c.side); strings.Join(got, "") != want {
				t.Fatalf("seed %d, %s:\n%s\nwant\n%s", seed, c.option, strings.Join(got, ""), want)
			}
		}
	}
}

package local

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/notebook"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/memory/memorytest"
)

func open(t testing.TB, dir string, o *Options) *Store {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func write(t testing.TB, s *Store, uri, text string) {
	t.Helper()
	if err := s.Write(t.Context(), uri, text, memory.Origin{}); err != nil {
		t.Fatal(err)
	}
}

func closeStore(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// contents are all notes of a store.
func contents(t testing.TB, s *Store) map[string]string {
	t.Helper()
	uris, err := s.List(t.Context(), "memory://")
	if err != nil {
		t.Fatal(err)
	}
	notes := make(map[string]string)
	for _, uri := range uris {
		if notes[uri], err = s.Read(t.Context(), uri); err != nil {
			t.Fatal(err)
		}
	}
	return notes
}

func TestStore(t *testing.T) {
	t.Parallel()
	memorytest.TestStore(t, func(t *testing.T) memory.Store { return open(t, t.TempDir(), nil) })
}

// TestStoreCompacting runs the suite on a store that compacts all the time.
func TestStoreCompacting(t *testing.T) {
	t.Parallel()
	memorytest.TestStore(t, func(t *testing.T) memory.Store { return open(t, t.TempDir(), &Options{CompactAt: 1}) })
}

// TestReopen makes random changes and demands the same notes and the same
// search results from the store that reads them back.
func TestReopen(t *testing.T) {
	t.Parallel()
	for _, compactAt := range []int64{0, 2000} {
		dir := t.TempDir()
		rng := rand.New(rand.NewPCG(3, 4))
		words := strings.Fields("alpha beta gamma 深色主题 \u2028 \x00 \"quoted\" thé running")
		var want map[string]string
		var hits [][]memory.Hit
		queries := []string{"alpha run", "gamma 主题 beta", "the\u0301"}
		for range 4 {
			s := open(t, dir, &Options{CompactAt: compactAt})
			if want != nil {
				if diff := cmp.Diff(want, contents(t, s)); diff != "" {
					t.Fatalf("reopened (-before +after):\n%s", diff)
				}
				for i, q := range queries {
					got, err := s.Find(t.Context(), memory.Query{Text: q})
					if err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(hits[i], got); diff != "" {
						t.Errorf("%q finds otherwise after reopening:\n%s", q, diff)
					}
				}
			}
			for range 60 {
				uri := fmt.Sprintf("memory://user/n%d", rng.IntN(12))
				switch rng.IntN(8) {
				case 0:
					if err := s.Delete(t.Context(), uri); err != nil {
						t.Fatal(err)
					}
				case 1:
					key := fmt.Sprint(rng.IntN(3))
					messages := make([]memory.Message, rng.IntN(4))
					for i := range messages {
						messages[i] = memory.Message{Role: "user", Text: words[rng.IntN(len(words))]}
					}
					if _, err := s.Archive(t.Context(), "s1", key, messages, memory.Origin{}); err != nil {
						t.Fatal(err)
					}
				default:
					var text []string
					for range rng.IntN(20) {
						text = append(text, words[rng.IntN(len(words))])
					}
					write(t, s, uri, strings.Join(text, " "))
				}
			}
			want = contents(t, s)
			hits = nil
			for _, q := range queries {
				h, err := s.Find(t.Context(), memory.Query{Text: q})
				if err != nil {
					t.Fatal(err)
				}
				hits = append(hits, h)
			}
			closeStore(t, s)
		}
	}
}

// logOf returns the bytes of a log of three notes and where its last frame
// begins.
func logOf(t *testing.T) (data []byte, last int) {
	t.Helper()
	dir := t.TempDir()
	s := open(t, dir, nil)
	for _, name := range []string{"a", "b", "c"} {
		last = int(s.log.size)
		write(t, s, "memory://user/"+name, "text "+name+" é")
	}
	closeStore(t, s)
	data, err := os.ReadFile(filepath.Join(dir, "notes.log"))
	if err != nil {
		t.Fatal(err)
	}
	return data, last
}

// openBytes opens a store whose log is data.
func openBytes(t *testing.T, data []byte) (string, *Store, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "notes.log"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir, nil)
	return dir, s, err
}

// TestTorn cuts the log at every byte of its last record, and fills the rest
// with zeros as file systems do after a power cut. Nothing but that record is
// lost, and the store goes on.
func TestTorn(t *testing.T) {
	t.Parallel()
	data, last := logOf(t)
	ab := map[string]string{"memory://user/a": "text a é", "memory://user/b": "text b é"}
	for cut := last; cut < len(data); cut++ {
		for _, zeros := range []int{0, len(data) - cut} {
			dir, s, err := openBytes(t, append(bytes.Clone(data[:cut]), make([]byte, zeros)...))
			if err != nil {
				t.Fatalf("cut at %d of %d, %d zeros: %v", cut, len(data), zeros, err)
			}
			if want := int64(cut + zeros - last); s.Torn() != want {
				t.Errorf("cut at %d: %d bytes torn off, want %d", cut, s.Torn(), want)
			}
			if diff := cmp.Diff(ab, contents(t, s)); diff != "" {
				t.Fatalf("cut at %d, %d zeros (-want +got):\n%s", cut, zeros, diff)
			}
			if (cut-last)%16 == 0 {
				write(t, s, "memory://user/d", "next")
				closeStore(t, s)
				s = open(t, dir, nil)
				if got := contents(t, s)["memory://user/d"]; got != "next" || s.Torn() != 0 {
					t.Errorf("cut at %d: the note written next reads %q, %d bytes torn", cut, got, s.Torn())
				}
			}
			closeStore(t, s)
		}
	}
}

// TestTornBirth cuts the log at every byte of its header: the crash came while
// the store was made.
func TestTornBirth(t *testing.T) {
	t.Parallel()
	f, err := frame(current)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range f {
		dir, s, err := openBytes(t, f[:cut])
		if err != nil {
			t.Fatalf("header cut at %d: %v", cut, err)
		}
		write(t, s, "memory://user/a", "text")
		closeStore(t, s)
		if got := contents(t, open(t, dir, nil)); len(got) != 1 {
			t.Errorf("header cut at %d: notes %v", cut, got)
		}
	}
}

// TestDamage flips every byte before the last record: each of them was
// acknowledged, so the store must not open without it.
func TestDamage(t *testing.T) {
	t.Parallel()
	data, last := logOf(t)
	for i := range last {
		bad := bytes.Clone(data)
		bad[i] ^= 0x20
		dir, s, err := openBytes(t, bad)
		if err == nil {
			t.Errorf("byte %d flipped: opened with %v", i, contents(t, s))
			closeStore(t, s)
			continue
		}
		if !errors.Is(err, ErrCorrupt) && (i >= len(mark) || !errors.Is(err, ErrFormat)) {
			t.Errorf("byte %d flipped: error %v, want ErrCorrupt", i, err)
		}
		after, err := os.ReadFile(filepath.Join(dir, "notes.log"))
		if err != nil || !bytes.Equal(after, bad) {
			t.Errorf("byte %d flipped: the refused log was changed (%v)", i, err)
		}
	}
}

func TestFormat(t *testing.T) {
	t.Parallel()
	newer, err := frame(header{Format: current.Format, Version: current.Version + 1})
	if err != nil {
		t.Fatal(err)
	}
	other, err := frame(header{Format: "other", Version: 1})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"newer": newer, "other": other, "text": []byte("# my notes\n")} {
		if _, _, err := openBytes(t, data); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: error %v, want ErrFormat", name, err)
		}
	}
	if _, _, err := openBytes(t, newer); err == nil || !strings.Contains(err.Error(), "newer release") {
		t.Errorf("error %q names no remedy", err)
	}
}

func TestLocked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, nil)
	_, err := Open(dir, nil)
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "name another directory") {
		t.Errorf("second store: error %v, want ErrLocked that names %s", err, dir)
	}
	write(t, s, "memory://user/a", "still mine")
	closeStore(t, s)
	closeStore(t, s)
	if err := s.Write(t.Context(), "memory://user/a", "late", memory.Origin{}); !errors.Is(err, memory.ErrClosed) {
		t.Errorf("write after close: error %v, want ErrClosed", err)
	}
	if _, err := s.Find(t.Context(), memory.Query{Text: "mine"}); !errors.Is(err, memory.ErrClosed) {
		t.Errorf("find after close: error %v, want ErrClosed", err)
	}
	if got := contents(t, open(t, dir, nil))["memory://user/a"]; got != "still mine" {
		t.Errorf("the next owner reads %q", got)
	}
}

// TestBroken takes the file away under the store: the write fails, so do all
// later ones, reads go on, and what was acknowledged is there afterwards.
func TestBroken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, nil)
	write(t, s, "memory://user/a", "kept")
	if err := s.log.file.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := s.Write(t.Context(), "memory://user/b", "lost", memory.Origin{})
		if !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), dir) {
			t.Errorf("error %v, want ErrBroken that names %s", err, dir)
		}
	}
	if err := s.Compact(t.Context()); !errors.Is(err, ErrBroken) {
		t.Errorf("compact: error %v, want ErrBroken", err)
	}
	want := map[string]string{"memory://user/a": "kept"}
	if diff := cmp.Diff(want, contents(t, s)); diff != "" {
		t.Errorf("broken store (-want +got):\n%s", diff)
	}
	closeStore(t, s)
	if diff := cmp.Diff(want, contents(t, open(t, dir, nil))); diff != "" {
		t.Errorf("reopened (-want +got):\n%s", diff)
	}
}

// TestCompact shows that the log stays in proportion to its notes, that what
// was deleted leaves the file, and that a half-made new log is harmless.
func TestCompact(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "notes.log")
	s := open(t, dir, &Options{CompactAt: 4000})
	for i := range 300 {
		write(t, s, fmt.Sprintf("memory://user/n%d", i%5), fmt.Sprintf("version %d %s", i, strings.Repeat("x", 100)))
	}
	write(t, s, "memory://user/secret", "the combination is 4711")
	if info, err := os.Stat(path); err != nil || info.Size() > 6000 {
		t.Errorf("the log of six notes: %v, %v, want at most 6000 bytes", info.Size(), err)
	}
	want := contents(t, s)
	delete(want, "memory://user/secret")
	if err := s.Delete(t.Context(), "memory://user/secret"); err != nil {
		t.Fatal(err)
	}
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil || bytes.Contains(data, []byte("4711")) {
		t.Errorf("the deleted note is in the compacted log (%v)", err)
	}
	write(t, s, "memory://user/after", "compaction")
	want["memory://user/after"] = "compaction"
	closeStore(t, s)
	if err := os.WriteFile(path+".new", data[:len(data)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, nil)
	if diff := cmp.Diff(want, contents(t, s)); diff != "" {
		t.Errorf("after compaction and crash (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(path + ".new"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the half-made log is still there: %v", err)
	}
}

// TestKill kills a process that writes as fast as it can: every write that it
// reported is there afterwards.
func TestKill(t *testing.T) {
	if dir := os.Getenv("RATH_MEMORY_TEST_DIR"); dir != "" {
		writeUntilKilled(t, dir)
		return
	}
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKill$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), "RATH_MEMORY_TEST_DIR="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	acked := make(map[string]string)
	note := func() {
		if uri, text, ok := strings.Cut(lines.Text(), " "); ok {
			acked[uri] = text
		}
	}
	for len(acked) < 10 && lines.Scan() {
		note()
	}
	// The next writes are under way now; 300 of them end in compactions.
	for range 300 {
		if lines.Scan() {
			note()
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		note()
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("the process ended by itself")
	}
	if len(acked) < 10 {
		t.Fatalf("the process reported %d writes", len(acked))
	}
	got := contents(t, open(t, dir, nil))
	for uri, text := range acked {
		var reported, stored int
		if _, err := fmt.Sscan(text, &reported); err != nil {
			t.Fatalf("%s was reported as %q: %v", uri, text, err)
		}
		// A write may have been made without having been reported.
		if _, err := fmt.Sscan(got[uri], &stored); err != nil || stored < reported {
			t.Errorf("%s holds %q, reported was %q", uri, got[uri], text)
		}
	}
}

func writeUntilKilled(t *testing.T, dir string) {
	s := open(t, dir, &Options{CompactAt: 3000})
	for i := range 1_000_000 {
		uri := fmt.Sprintf("memory://user/n%d", i%20)
		write(t, s, uri, fmt.Sprint(i))
		fmt.Println(uri, i)
	}
}

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "memory")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for range 2 { // the second time it is there already
		s, err := Open(dir, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		hits, err := s.Find(context.Background(), memory.Query{Text: "colour"})
		fmt.Println(len(hits), err)
		if err := s.Write(context.Background(), "memory://user/theme", "Prefers dark colours.", memory.Origin{}); err != nil {
			fmt.Println(err)
		}
		if err := s.Close(); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// 0 <nil>
	// 1 <nil>
}

func BenchmarkOpen(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			dir := b.TempDir()
			s := open(b, dir, nil)
			rng := rand.New(rand.NewPCG(7, 7))
			zipf := rand.NewZipf(rng, 1.1, 4, 20_000)
			for i := range n {
				var text strings.Builder
				for range 60 {
					fmt.Fprintf(&text, "word%x ", zipf.Uint64())
				}
				note := notebook.Note{URI: fmt.Sprintf("memory://resources/%d", i), Text: text.String()}
				f, err := frame(notebook.Change{Puts: []notebook.Note{note}})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := s.log.file.Write(f); err != nil { // without waiting for each
					b.Fatal(err)
				}
			}
			closeStore(b, s)
			for b.Loop() {
				s, err := Open(dir, nil)
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				closeStore(b, s)
				b.StartTimer()
			}
		})
	}
}

func BenchmarkWrite(b *testing.B) {
	s := open(b, b.TempDir(), nil)
	for i := 0; b.Loop(); i++ {
		write(b, s, fmt.Sprintf("memory://user/%d", i%1000), fmt.Sprintf("note %d of the benchmark", i))
	}
}

// TestOrigins: notes of a release that kept no origins are read, and origins
// outlive a restart and a compaction.
func TestOrigins(t *testing.T) {
	dir := t.TempDir()
	old := frameOf(t, `{"format":"rath-memory","version":1}`) + frameOf(t, `{"puts":[{"uri":"memory://user/old","text":"old words"}]}`)
	if err := os.WriteFile(filepath.Join(dir, "notes.log"), []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	from := memory.Origin{Session: "s1", Version: 3, Run: "r1", Step: "2.a.0"}
	s := open(t, dir, nil)
	if err := s.Write(t.Context(), "memory://user/new", "new words", from); err != nil {
		t.Fatal(err)
	}
	for _, after := range []string{"a restart", "a compaction"} {
		if after == "a compaction" {
			if err := s.Compact(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		closeStore(t, s)
		s = open(t, dir, nil)
		hits, err := s.Find(t.Context(), memory.Query{Text: "words"})
		if err != nil || len(hits) != 2 || hits[0].Origin != from || hits[1].Origin != (memory.Origin{}) || hits[1].Snippet != "old words" {
			t.Errorf("after %s: %+v, %v", after, hits, err)
		}
	}
}

// frameOf is a record as it lies in the file.
func frameOf(t *testing.T, payload string) string {
	t.Helper()
	f, err := frame(json.RawMessage(payload))
	if err != nil {
		t.Fatal(err)
	}
	return string(f)
}

// Package transcript plays test files that read as documentation. A line that
// begins with "> " is a command; the lines below it, up to an empty line or the
// next command, are its answer. All other lines are prose:
//
//	A claim of a session that no run holds is one commit.
//
//	> a submit r1
//	home/1
//	  run.submitted r1
//	  run.claimed r1
//
// A test passes a function that runs a command to [Play]. If an answer differs,
// the test fails, or, with update, Play rewrites the file.
package transcript

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// Options configure Play; nil means the defaults.
type Options struct {
	// Update rewrites the file with the actual answers.
	Update bool
	// Same reports whether an answer is equivalent to the one in the file; nil requires the
	// same text.
	Same func(got, want string) bool
}

// Play runs the commands of a file in order, and stops at the first whose answer differs
// from the file.
func Play(t *testing.T, file string, o *Options, do func(command string) string) {
	t.Helper()
	if o == nil {
		o = &Options{}
	}
	data := must.Get(os.ReadFile(file))(t)
	lines := strings.SplitAfter(string(data), "\n")
	var out strings.Builder
	for at, commands := 0, 0; at < len(lines); {
		line := lines[at]
		at++
		out.WriteString(line)
		command, ok := strings.CutPrefix(line, "> ")
		if !ok {
			if at == len(lines) && commands == 0 {
				t.Fatalf("%s has no command", file)
			}
			continue
		}
		commands++
		first := at
		for at < len(lines) && strings.TrimSpace(lines[at]) != "" && !strings.HasPrefix(lines[at], "> ") {
			at++
		}
		want := strings.Join(lines[first:at], "")
		got := do(strings.TrimSpace(command))
		if got != "" && !strings.HasSuffix(got, "\n") {
			got += "\n"
		}
		out.WriteString(got)
		if !o.Update && got != want && (o.Same == nil || !o.Same(got, want)) {
			t.Fatalf("%s:%d: %sanswers\n%s\nwant\n%s", file, first, line, got, want)
		}
	}
	if o.Update && !t.Failed() && out.String() != string(data) {
		must.Do(t, os.WriteFile(file, []byte(out.String()), 0o600))
	}
}

// Words splits a command at white space. A part in double quotes is one word, also after a
// key: text="two words" is the word text=two words.
func Words(command string) (words []string) {
	for rest := strings.TrimSpace(command); rest != ""; rest = strings.TrimSpace(rest) {
		var word strings.Builder
		for rest != "" && rest[0] != ' ' {
			begins := word.Len() == 0 || strings.HasSuffix(word.String(), "=")
			if quoted, err := strconv.QuotedPrefix(rest); rest[0] == '"' && begins && err == nil {
				text, _ := strconv.Unquote(quoted) // QuotedPrefix has checked it
				word.WriteString(text)
				rest = rest[len(quoted):]
				continue
			}
			word.WriteByte(rest[0])
			rest = rest[1:]
		}
		words = append(words, word.String())
	}
	return words
}

// Args splits words into plain words and those of the form key=value.
func Args(words []string) (plain []string, named map[string]string) {
	named = map[string]string{}
	for _, w := range words {
		if key, value, ok := strings.Cut(w, "="); ok {
			named[key] = value
		} else {
			plain = append(plain, w)
		}
	}
	return plain, named
}

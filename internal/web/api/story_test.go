package api_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// words splits a line as a shell does that knows both quotes.
var words = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)

// TestStory runs the commands of docs/http.md in their order, and compares the status and a
// part of each answer.
func TestStory(t *testing.T) {
	d := open(t)
	text := string(must.Get(os.ReadFile(filepath.Join("..", "..", "..", "docs", "http.md")))(t))
	ran := 0
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		command, ok := strings.CutPrefix(line, "    curl ")
		if !ok {
			continue
		}
		if strings.Contains(command, "/answer") || strings.Contains(command, "$R/questions") {
			d.question(t, "notes")
		}
		ran++
		method, path, body, header := "GET", "", "", http.Header{}
		args := words.FindAllString(command, -1)
		for k := 0; k < len(args); k++ {
			arg := strings.Trim(args[k], `'"`)
			value := func() string {
				k++
				return strings.Trim(args[k], `'"`)
			}
			switch {
			case arg == "-s", arg == "-N":
			case arg == "-H":
				if value() != "$A" {
					t.Fatalf("%s: without the token", line)
				}
			case arg == "-o":
				value()
			case arg == "-X":
				method = value()
			case arg == "--json":
				k++
				body = strings.Trim(args[k], "'")
				header.Set("Content-Type", "application/json")
				if method == "GET" {
					method = "POST"
				}
			case strings.HasPrefix(arg, "$R/"):
				path = "/api/v1" + strings.TrimPrefix(arg, "$R")
			default:
				t.Fatalf("%s: %s is unknown", line, arg)
			}
		}
		if i := strings.Index(command, "-X "); i > 0 {
			method = strings.Fields(command[i:])[1]
		}
		a := d.send(t, ann, method, path, body, header)
		var status int
		want, ok := strings.CutPrefix(lines[i+1], "    => ")
		if _, err := fmt.Sscan(want, &status); !ok || err != nil {
			t.Fatalf("%s: no answer follows", line)
		}
		if part := strings.TrimSpace(want[3:]); a.status != status || !strings.Contains(a.body, part) {
			t.Errorf("%s: %d %.400s, the document has %s", line, a.status, a.body, want)
		}
	}
	if ran < 20 {
		t.Errorf("the document has %d commands", ran)
	}
}

package openviking

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/memory/memorytest"
)

// viking answers as OpenViking's API is described (docs/en/api, version 0.4): the envelope,
// its codes and the shapes of results. Its search scores a file by the words that it shares
// with the query.
type viking struct {
	mu    sync.Mutex
	files map[string]string
	tags  map[string][]string
}

func (v *viking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	ok := func(result any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "ok", "result": result, "time": 0.1})
	}
	fail := func(status int, code, message string) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "error", "error": map[string]string{"code": code, "message": message}, "time": 0.1})
	}
	if r.Header.Get("X-API-Key") != "key" {
		fail(401, "UNAUTHENTICATED", "Missing or invalid API key")
		return
	}
	var in struct {
		URI, Content, Mode, Query string
		Target                    string `json:"target_uri"`
		Wait                      bool
		Tags                      *[]string
		TagMode                   string `json:"tag_mode"`
		Limit                     int
	}
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			fail(400, "INVALID_ARGUMENT", err.Error())
			return
		}
	}
	uri := r.URL.Query().Get("uri")
	switch r.Method + " " + r.URL.Path {
	case "POST /api/v1/content/write":
		if in.Mode != "replace" || !in.Wait {
			fail(400, "INVALID_ARGUMENT", "mode")
			return
		}
		v.files[in.URI] = in.Content
		if in.Tags != nil {
			v.tags[in.URI] = nil
			for _, tag := range *in.Tags {
				if in.TagMode != "replace" || strings.Contains(tag, ",") || strings.Count(tag, "=") != 1 {
					fail(400, "INVALID_ARGUMENT", "tag")
					return
				}
				v.tags[in.URI] = append(v.tags[in.URI], strings.ToLower(strings.TrimSpace(tag)))
			}
		}
		ok(map[string]any{"uri": in.URI, "written_bytes": len(in.Content), "content_updated": true})
	case "GET /api/v1/content/read":
		if text, have := v.files[uri]; have {
			ok(text)
			return
		}
		fail(404, "NOT_FOUND", "File not found: "+uri)
	case "GET /api/v1/fs/attrs":
		if _, have := v.files[uri]; !have {
			fail(404, "NOT_FOUND", "File not found: "+uri)
			return
		}
		ok(map[string]any{"uri": uri, "context_type": "resource", "attrs": map[string]any{"tags": v.tags[uri]}})
	case "GET /api/v1/content/abstract", "GET /api/v1/content/overview":
		for file := range v.files {
			if strings.HasSuffix(uri, "/") && strings.HasPrefix(file, uri) {
				ok("The " + r.URL.Path[len("/api/v1/content/"):] + " of the server.")
				return
			}
		}
		fail(404, "NOT_FOUND", "Directory not found: "+uri)
	case "GET /api/v1/fs/ls":
		entries := []map[string]any{}
		for file, text := range v.files {
			if strings.HasPrefix(file, uri+"/") {
				entries = append(entries, map[string]any{"name": file[strings.LastIndex(file, "/")+1:], "size": len(text), "isDir": false, "uri": file})
			}
		}
		if len(entries) == 0 {
			fail(404, "NOT_FOUND", "Directory not found: "+uri)
			return
		}
		ok(append(entries, map[string]any{"name": "dir.md", "isDir": true, "uri": uri + "/dir.md"}))
	case "DELETE /api/v1/fs":
		for file := range v.files {
			if file == uri || strings.HasPrefix(file, uri+"/") {
				delete(v.files, file)
				delete(v.tags, file)
			}
		}
		ok(nil)
	case "POST /api/v1/search/find":
		groups := map[string][]map[string]any{"memories": {}, "resources": {}, "skills": {}}
		n := 0
		for file, text := range v.files {
			score := 0.0
			for word := range strings.FieldsSeq(in.Query) {
				for in := range strings.FieldsSeq(text) {
					if in == word {
						score += 0.25
					}
				}
			}
			if strings.HasPrefix(file, in.Target+"/") && score > 0 {
				group := []string{"memories", "resources"}[n%2]
				groups[group] = append(groups[group], map[string]any{"uri": file, "level": 2, "score": score, "abstract": text})
				n++
			}
		}
		groups["resources"] = append(groups["resources"],
			map[string]any{"uri": in.Target + "/.abstract.md", "level": 0, "score": 0.9, "abstract": "a summary"},
			map[string]any{"uri": "viking://resources/other/a.md", "level": 2, "score": 0.9, "abstract": "of others"})
		ok(groups)
	default:
		fail(501, "UNIMPLEMENTED", r.URL.Path)
	}
}

func open(t *testing.T, h http.Handler, o Options) memory.Store {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	o.URL, o.Key = server.URL+"/", "key"
	s := must.Get(New(&o))(t)
	return s
}

// TestStore writes, reads, finds, lists and removes notes at a server that implements the
// described API, below a separate root; other files are not notes.
func TestStore(t *testing.T) {
	v := &viking{tags: map[string][]string{}, files: map[string]string{"viking://resources/rath/user/.overview.md": "dark summary", "viking://resources/rath/user/a.txt": "dark"}}
	s := open(t, v, Options{})
	ctx := t.Context()
	if got, err := s.List(ctx, "memory://user/none"); err != nil || len(got) > 0 {
		t.Errorf("a name without notes has %q: %v", got, err)
	}
	for uri, text := range map[string]string{
		"memory://user/prefs/theme": "dark dark theme", "viking://user/prefs": "dark", "memory://session/s1/a b/深色": "night\n dark \xff",
		"memory://agent/x": "lunch",
	} {
		must.Do(t, s.Write(ctx, uri, text, memory.Origin{Session: "s9"}))
	}
	if text, err := s.Read(ctx, "memory://session/s1/a b/深色"); err != nil || text != "night\n dark \ufffd" || v.files["viking://resources/rath/session/s1/a b/深色.md"] != text {
		t.Errorf("read %q: %v", text, err)
	}
	if _, err := s.Read(ctx, "memory://user/none"); !errors.Is(err, memory.ErrNotFound) {
		t.Errorf("a note that is not there: %v", err)
	}
	hits, err := s.Find(ctx, memory.Query{Text: "dark theme"})
	want := []memory.Hit{
		{URI: "memory://user/prefs/theme", Snippet: "dark dark theme", Origin: memory.Origin{Session: "s9"}, Score: 750_000},
		{URI: "memory://session/s1/a b/深色", Snippet: "night dark \ufffd", Session: "s1", Origin: memory.Origin{Session: "s9"}, Score: 250_000},
		{URI: "memory://user/prefs", Snippet: "dark", Origin: memory.Origin{Session: "s9"}, Score: 250_000},
	}
	if err != nil || !slices.Equal(hits, want) {
		t.Errorf("found %+v, want %+v: %v", hits, want, err)
	}
	if hits, err := s.Find(ctx, memory.Query{Text: "dark", Under: "memory://user/prefs", Limit: 1}); err != nil || len(hits) != 1 || hits[0].URI != "memory://user/prefs/theme" {
		t.Errorf("below a name %+v: %v", hits, err)
	}
	if hits, err := s.Find(ctx, memory.Query{Text: " \n"}); err != nil || len(hits) > 0 {
		t.Errorf("an empty query finds %+v: %v", hits, err)
	}
	for under, want := range map[string]string{
		"memory://user/prefs": "[memory://user/prefs memory://user/prefs/theme]", "memory://agent": "[memory://agent/x]",
		"memory://": "[memory://agent/x memory://session/s1/a b/深色 memory://user/prefs memory://user/prefs/theme]",
	} {
		if got, err := s.List(ctx, under); err != nil || fmt.Sprint(got) != want {
			t.Errorf("below %s are %q, want %s: %v", under, got, want, err)
		}
	}
	for range 2 {
		must.Report(t, s.Delete(ctx, "memory://user/prefs"))
	}
	if got, err := s.List(ctx, "memory://user"); err != nil || len(got) > 0 || v.files["viking://resources/rath/user/a.txt"] == "" {
		t.Errorf("after the removal there are %q: %v", got, err)
	}
	for _, uri := range []string{"", "http://x", "memory://user", "memory://team/a", "memory://user/../a", "memory://user/.abstract", "memory://user/a/.b/c"} {
		if err := s.Write(ctx, uri, "x", memory.Origin{}); !errors.Is(err, memory.ErrInvalidURI) {
			t.Errorf("a note %q: %v", uri, err)
		}
	}
	if err := s.Write(ctx, "memory://user/a", strings.Repeat("x", memory.MaxText+1), memory.Origin{}); !errors.Is(err, memory.ErrTooLarge) {
		t.Errorf("a large note: %v", err)
	}
}

// TestSuite runs the suite of all stores at a server, except for properties that the
// server's search decides: the words that find a note, equal hits, and snippets.
func TestSuite(t *testing.T) {
	memorytest.TestStore(t, func(t *testing.T) memory.Store {
		return open(t, &viking{files: map[string]string{}, tags: map[string][]string{}}, Options{})
	}, "Find", "FindScripts", "Snippet", "Order")
}

// TestOrigin: an Origin is returned as written, other tags stay, and NoTags supports a
// server without tags.
func TestOrigin(t *testing.T) {
	v := &viking{files: map[string]string{}, tags: map[string][]string{}}
	s := open(t, v, Options{})
	from := memory.Origin{Session: "S-1", Version: 7, Run: "Run_2", Step: "0.A.1", User: "Ünal, a=b"}
	must.Do(t, s.Write(t.Context(), "memory://user/a", "dark", from))
	file := "viking://resources/rath/user/a.md"
	v.tags[file] = append(v.tags[file], "team=search")
	hits, err := s.Find(t.Context(), memory.Query{Text: "dark"})
	if err != nil || len(hits) != 1 || hits[0].Origin != from {
		t.Errorf("found %+v: %v", hits, err)
	}
	v.tags[file] = []string{"rath-origin=zz"}
	if _, err := s.Find(t.Context(), memory.Query{Text: "dark"}); err == nil || !strings.Contains(err.Error(), "write the note again") {
		t.Errorf("a tag that is none: %v", err)
	}
	old := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/attrs") {
			w.WriteHeader(404)
			_, _ = w.Write([]byte(`{"detail":"Not Found"}`))
			return
		}
		v.ServeHTTP(w, r)
	})
	if _, err := open(t, old, Options{}).Find(t.Context(), memory.Query{Text: "dark"}); err == nil || !strings.Contains(err.Error(), "set Options.NoTags") {
		t.Errorf("a server without tags: %v", err)
	}
	untagged := open(t, old, Options{NoTags: true})
	if err := untagged.Write(t.Context(), "memory://user/b", "green", from); err != nil || len(v.tags["viking://resources/rath/user/b.md"]) > 0 {
		t.Errorf("written with tags %q: %v", v.tags, err)
	}
	if hits, err := untagged.Find(t.Context(), memory.Query{Text: "green"}); err != nil || len(hits) != 1 || hits[0].Origin != (memory.Origin{}) {
		t.Errorf("without tags %+v: %v", hits, err)
	}
}

// TestLevels: abstracts and overviews below a name are the server's; those of a note are
// derived from its text.
func TestLevels(t *testing.T) {
	s := open(t, &viking{files: map[string]string{}, tags: map[string][]string{}}, Options{})
	for i, text := range []string{"# Title\n\nOne. Two.\n", "Three."} {
		must.Do(t, s.Write(t.Context(), fmt.Sprintf("memory://resources/guide/%d", i), text, memory.Origin{}))
	}
	for _, tt := range []struct{ uri, level, want string }{
		{"memory://resources/guide", memory.LevelAbstract, "The abstract of the server."},
		{"memory://resources", memory.LevelOverview, "The overview of the server."},
		{"memory://resources/guide", memory.LevelFull, "# Title\n\nOne. Two.\nThree."},
		{"memory://resources/guide/0", memory.LevelAbstract, "Title: One. Two."},
		{"memory://resources/guide/0", memory.LevelOverview, "# Title\nOne."},
		{"memory://resources/guide/1", memory.LevelFull, "Three."},
	} {
		if got, err := memory.ReadLevel(t.Context(), s, tt.uri, tt.level); err != nil || got != tt.want {
			t.Errorf("%s of %s is %q, want %q: %v", tt.level, tt.uri, got, tt.want, err)
		}
	}
	for _, level := range []string{memory.LevelAbstract, memory.LevelFull} {
		if _, err := memory.ReadLevel(t.Context(), s, "memory://user/none", level); !errors.Is(err, memory.ErrNotFound) {
			t.Errorf("%s of nothing: %v", level, err)
		}
	}
	if _, err := s.Find(t.Context(), memory.Query{Text: "x", Scores: memory.ScoresOpenRath}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("scores of OpenRath: %v", err)
	}
}

// TestAnswers: a server that rejects, fails, returns invalid answers or none causes an
// error that names it and the remedy, never a note or an empty list.
func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		status     int
		body, want string
		is         error
	}{
		{404, `{"status":"error","error":{"code":"NOT_FOUND","message":"no file"}}`, "no file", memory.ErrNotFound},
		{400, `{"status":"error","error":{"code":"INVALID_URI","message":"bad"}}`, "bad", memory.ErrInvalidURI},
		{401, `{"status":"error","error":{"code":"UNAUTHENTICATED","message":"who"}}`, "check the key", nil},
		{429, `{"status":"error","error":{"code":"RESOURCE_EXHAUSTED","message":"slow down"}}`, "HTTP status 429, RESOURCE_EXHAUSTED: slow down", nil},
		{500, `{"status":"error"}`, "HTTP status 500, no code", nil},
		{200, `{"status":"error","error":{"code":"INTERNAL","message":"x"}}`, "INTERNAL", nil},
		{500, `{"status":"ok","result":"text"}`, "HTTP status 500", nil},
		{307, "", "HTTP status 307 with an answer that is not OpenViking's", nil},
		{502, "<html>Bad gateway</html>", `"<html>Bad gateway</html>"; check the URL`, nil},
		{200, `{"result":"text"}`, "not OpenViking's", nil},
		{200, `{"status":"ok","result":{"a":1}}`, "the result violates the API", nil},
		{200, `{"status":"ok","result":"` + strings.Repeat("x", maxAnswer) + `"}`, "more than 33554432 bytes", memory.ErrTooLarge},
	} {
		s := open(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://127.0.0.1:9/elsewhere")
			w.WriteHeader(tt.status)
			_, _ = w.Write([]byte(tt.body))
		}), Options{})
		_, err := s.Read(t.Context(), "memory://user/a")
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), s.(*store).o.URL) || tt.is != nil && !errors.Is(err, tt.is) {
			t.Errorf("%d %.60s: %v, want %q", tt.status, tt.body, err, tt.want)
		}
		if tt.is == nil {
			if got, err := s.List(t.Context(), "memory://user"); err == nil {
				t.Errorf("%d %.60s: listed %q", tt.status, tt.body, got)
			}
		}
	}

	hangs := make(chan struct{})
	defer close(hangs)
	s := open(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-hangs:
		}
	}), Options{Timeout: 50 * time.Millisecond})
	if _, err := s.Find(t.Context(), memory.Query{Text: "x"}); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "raise Options.Timeout") {
		t.Errorf("a server that hangs: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Delete(ended, "memory://user/a"); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	s = must.Get(New(&Options{URL: gone.URL}))(t)
	if err := s.Write(t.Context(), "memory://user/a", "x", memory.Origin{}); err == nil || !strings.Contains(err.Error(), "check that the server runs there") {
		t.Errorf("without a server: %v", err)
	}
}

// TestNew rejects unusable settings at once.
func TestNew(t *testing.T) {
	for _, o := range []Options{{}, {URL: "h:1933"}, {URL: "ftp://h"}, {URL: "http://u:secret@h"}, {URL: "http://h?x=1"}, {URL: "http://h", Root: "resources"}, {URL: "http://h", Root: "viking://"}} {
		if _, err := New(&o); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

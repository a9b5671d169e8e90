package tool

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// servers answer the requests of fetch by URL.
type servers map[string]func(*http.Request) (*http.Response, error)

func (s servers) RoundTrip(r *http.Request) (*http.Response, error) {
	if a, ok := s[r.URL.String()]; ok {
		return a(r)
	}
	return nil, fmt.Errorf("%q is not among the hosts that this run may reach", r.URL.Hostname())
}

// answers is an answer with a body and headers in pairs.
func answers(status int, body string, headers ...string) func(*http.Request) (*http.Response, error) {
	return streams(status, strings.NewReader(body), headers...)
}

func streams(status int, body io.Reader, headers ...string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		h := http.Header{}
		for i := 0; i < len(headers); i += 2 {
			h.Set(headers[i], headers[i+1])
		}
		return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(body), ContentLength: -1, Request: r}, nil
	}
}

// unending is a body without end.
type unending struct{}

func (unending) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = "0123456789abcde\n"[i%16]
	}
	return len(p), nil
}

// silent is a body that never arrives before its request ends.
type silent struct{ ctx context.Context }

func (s silent) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

// fetched calls fetch over servers.
func fetched(t *testing.T, s servers, args map[string]any) (fetchBody, *Failure) {
	t.Helper()
	table := must.Get(NewTable(fetch()))(t)
	text := must.Get(json.Marshal(args))(t)
	c := Call{HTTP: func(context.Context) (http.RoundTripper, error) { return s, nil }}
	if s == nil {
		c.HTTP = func(context.Context) (http.RoundTripper, error) { return nil, nil }
	}
	out := table.Call(t.Context(), Fetch, string(text), c)
	var body fetchBody
	if !out.IsError {
		must.Do(t, json.Unmarshal(out.Body, &body))
		return body, nil
	}
	f, ok := errors.AsType[*Failure](out.Err)
	if !ok {
		t.Fatalf("%s", out.Body)
	}
	return body, f
}

// TestFetchRefuses: the error of a failed fetch has the cause and the remedy.
func TestFetchRefuses(t *testing.T) {
	const u = "http://a.example/x"
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	io.WriteString(z, "text") // to a buffer
	z.Close()                 // likewise
	for name, tt := range map[string]struct {
		s    servers
		args map[string]any
		kind Kind
		says string
	}{
		"no list":            {nil, map[string]any{"url": u}, Unsupported, "rath run --allow HOST"},
		"no address":         {servers{}, map[string]any{"url": "http://[::1"}, InvalidArguments, "write it whole"},
		"no scheme":          {servers{}, map[string]any{"url": "a.example/x"}, InvalidArguments, "https://example.org/page"},
		"a file":             {servers{}, map[string]any{"url": "file:///etc/passwd"}, InvalidArguments, `"file" is not fetched`},
		"no host":            {servers{}, map[string]any{"url": "https:///x"}, InvalidArguments, "no host"},
		"a password":         {servers{}, map[string]any{"url": "https://me:secret@a.example/"}, InvalidArguments, "leave it out"},
		"a long address":     {servers{}, map[string]any{"url": "https://a.example/" + strings.Repeat("x", maxURL)}, InvalidArguments, "maxLength"},
		"a long time":        {servers{}, map[string]any{"url": u, "timeout_ms": 1e9}, InvalidArguments, "maximum"},
		"another host":       {servers{}, map[string]any{"url": "https://b.example/"}, Unreachable, "not among the hosts"},
		"redirected there":   {servers{u: answers(302, "", "Location", "http://b.example/")}, map[string]any{"url": u}, Unreachable, `"b.example" is not among`},
		"redirected to self": {servers{u: answers(302, "", "Location", u)}, map[string]any{"url": u}, Unreachable, "more than 10 times"},
		"redirected to a file": {
			servers{u: answers(302, "", "Location", "file:///etc/passwd")}, map[string]any{"url": u}, Unreachable, `the scheme "file"`,
		},
		"an image":       {servers{u: answers(200, "\x89PNG\x0D\x0A\x1A\x0A\x00", "Content-Type", "image/png")}, map[string]any{"url": u}, NotText, "image/png, 9 bytes"},
		"called text":    {servers{u: answers(200, "a\x00b", "Content-Type", "text/plain")}, map[string]any{"url": u}, NotText, "no text"},
		"packed":         {servers{u: answers(200, packed.String())}, map[string]any{"url": u}, NotText, "gzip"},
		"breaks off":     {servers{u: streams(200, io.MultiReader(strings.NewReader("ab"), broken{}))}, map[string]any{"url": u}, Unreachable, "after 2 bytes"},
		"does not begin": {servers{u: func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() }}, map[string]any{"url": u, "timeout_ms": 20}, Timeout, "within 20ms"},
		"does not end": {servers{u: func(r *http.Request) (*http.Response, error) {
			return streams(200, silent{r.Context()})(r)
		}}, map[string]any{"url": u, "timeout_ms": 20}, Timeout, "within 20ms"},
	} {
		t.Run(name, func(t *testing.T) {
			body, f := fetched(t, tt.s, tt.args)
			if f == nil {
				t.Fatalf("it gets %+v", body)
			}
			if f.Kind != tt.kind || !strings.Contains(f.Message, tt.says) || strings.Contains(f.Error()+f.Detail, "secret") {
				t.Errorf("%s: %s (%s), want %s with %q", f.Kind, f.Message, f.Detail, tt.kind, tt.says)
			}
		})
	}
}

// TestFetchNoSandbox: a sandbox that does not open has no way to the network.
func TestFetchNoSandbox(t *testing.T) {
	full := errors.New("node is full")
	out := table(t, fetch()).Call(t.Context(), Fetch, `{"url":"http://a.example/"}`, Call{HTTP: func(context.Context) (http.RoundTripper, error) { return nil, full }})
	if out.Kind != SandboxUnavailable || !errors.Is(out.Err, full) {
		t.Errorf("%s, %v", out.Body, out.Err)
	}
}

// broken is a connection that ends.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestFetch reads texts of all kinds.
func TestFetch(t *testing.T) {
	const u = "http://a.example/x"
	for name, tt := range map[string]struct {
		s    servers
		args map[string]any
		want fetchBody
	}{
		"text":         {servers{u: answers(200, "one\ntwo\n", "Content-Type", "text/plain")}, nil, fetchBody{Status: 200, Type: "text/plain", Data: "one\ntwo\n"}},
		"nothing":      {servers{u: answers(204, "")}, nil, fetchBody{Status: 204}},
		"JSON":         {servers{u: answers(200, `{"a":1}`, "Content-Type", "application/json")}, nil, fetchBody{Status: 200, Type: "application/json", Data: `{"a":1}`}},
		"no such page": {servers{u: answers(404, "no", "Content-Type", "text/plain")}, nil, fetchBody{Status: 404, Type: "text/plain", Data: "no"}},
		"lines":        {servers{u: answers(200, "1\n2\n3\n4\n", "Content-Type", "text/plain")}, map[string]any{"offset": 2, "limit": 2}, fetchBody{Status: 200, Type: "text/plain", Data: "2\n3\n"}},
		"redirected": {
			servers{u: answers(301, "", "Location", "/y"), "http://a.example/y": answers(200, "there", "Content-Type", "text/plain")},
			nil,
			fetchBody{Status: 200, URL: "http://a.example/y", Type: "text/plain", Data: "there"},
		},
		"Latin-1":        {servers{u: answers(200, "caf\xe9", "Content-Type", "text/plain; charset=iso-8859-1")}, nil, fetchBody{Status: 200, Type: "text/plain; charset=iso-8859-1", Data: "café"}},
		"UTF-16":         {servers{u: answers(200, "h\x00i\x00", "Content-Type", "text/plain; charset=utf-16le")}, nil, fetchBody{Status: 200, Type: "text/plain; charset=utf-16le", Data: "hi"}},
		"no such coding": {servers{u: answers(200, "café", "Content-Type", "text/plain; charset=nosuch")}, nil, fetchBody{Status: 200, Type: "text/plain; charset=nosuch", Data: "café"}},
		"no UTF-8":       {servers{u: answers(200, "a\xffb", "Content-Type", "text/plain; charset=utf-8")}, nil, fetchBody{Status: 200, Type: "text/plain; charset=utf-8", Data: "a\ufffdb", Lossy: true}},
		"broken type":    {servers{u: answers(200, "<p>a", "Content-Type", "text/html; charset")}, nil, fetchBody{Status: 200, Type: "text/html; charset", Data: "a\n"}},
		"coding of a page": {
			servers{u: answers(200, "<meta charset=windows-1251><p>\xcf\xf0\xe8", "Content-Type", "text/html")},
			nil,
			fetchBody{Status: 200, Type: "text/html", Data: "При\n"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			args := map[string]any{"url": u}
			maps.Copy(args, tt.args)
			got, f := fetched(t, tt.s, args)
			if f != nil {
				t.Fatal(f)
			}
			if got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestFetchBounds reads an endless response up to a limit, without delay.
func TestFetchBounds(t *testing.T) {
	const u = "http://a.example/x"
	began := time.Now()
	got, f := fetched(t, servers{u: streams(200, unending{}, "Content-Type", "text/plain")}, map[string]any{"url": u, "timeout_ms": MaxFetchTime.Milliseconds()})
	if f != nil {
		t.Fatal(f)
	}
	if !got.Cut || got.Truncated == nil || got.Truncated.Chars != MaxFetched || len(got.Data) > MaxShown+200 {
		t.Errorf("%d characters shown, cut %t, %+v", len(got.Data), got.Cut, got.Truncated)
	}
	if took := time.Since(began); took > MaxFetchTime/2 {
		t.Errorf("it took %v", took)
	}
	// Unclosed elements cost no more than their bytes.
	deep := strings.Repeat("<div><a href=/x><b><svg>", MaxFetched/24)
	if got, f = fetched(t, servers{u: answers(200, "<h1>top</h1>"+deep, "Content-Type", "text/html")}, map[string]any{"url": u, "timeout_ms": MaxFetchTime.Milliseconds()}); f != nil || got.Data != "# top\n" {
		t.Errorf("%v, %.100q", f, got.Data)
	}
}

// TestPageGrows: addresses that a page makes longer and longer, and links to them, take no
// more than the page does a few times.
func TestPageGrows(t *testing.T) {
	base, link := `<base href="`+strings.Repeat("a", 900)+`/">`, `<a href=x>t</a>`
	for name, text := range map[string]string{
		"a base of a base": strings.Repeat(base, 100) + strings.Repeat(link, 1000),
		"one base":         base + strings.Repeat(link, 100_000),
	} {
		body, f := fetched(t, servers{"https://docs.net/": answers(200, text, "Content-Type", "text/html")}, map[string]any{"url": "https://docs.net/"})
		if f != nil || body.Truncated == nil {
			t.Fatal(name, f, body.Truncated)
		}
		if most := int64(len(text) + MaxFetched); body.Truncated.Chars > most {
			t.Errorf("%s: %d bytes become %d, at most %d may be", name, len(text), body.Truncated.Chars, most)
		}
	}
}

// TestPage reduces a page to its visible text.
func TestPage(t *testing.T) {
	const u = "https://a.example/docs/x"
	got, f := fetched(t, servers{u: answers(200, `<!doctype html><html><head><title>The  page</title><style>p{}</style><script>if (a < b) { "<p>no" }</script></head>
<body><nav><a href="/">home</a></nav><h1>Head &amp; tail</h1>
<p>One <b>bold</b> word,
a <a href="../y?q=1&amp;r=2">link</a>, <a href="javascript:x()">none</a>, <a href="#here">here</a> and an <img src=i alt="image">.<br>Next line
<ul><li>first<li>second <a href="//b.example/"><img src=j></a></ul>
<pre>  if x {
	y()
  }</pre>
<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>
<noscript>no</noscript><template><p>no</template>end</body></html>`, "Content-Type", "text/html")}, map[string]any{"url": u})
	if f != nil {
		t.Fatal(f)
	}
	want := `# The page

# Head & tail

One bold word, a [link](https://a.example/y?q=1&r=2), none, here and an image.
Next line

- first
- second

  if x {
	y()
  }

a | b
1 | 2

end
`
	if got.Data != want {
		t.Errorf("it reads\n%s\nwant\n%s", got.Data, want)
	}
}

// Package openviking implements memory.Store with an OpenViking server and its HTTP API.
//
//	n, err := node.Start(ctx, &node.Options{Memory: func(_ context.Context, t session.Tenant, name string) (memory.Store, error) {
//		root := openviking.DefaultRoot + "/" + string(t) + "/" + name // no other tenant's
//		return openviking.New(&openviking.Options{URL: "http://127.0.0.1:1933", Key: key, Root: root})
//	}})
//
// A note memory://user/preferences/theme is the file user/preferences/theme.md below a root
// of the server, by default viking://resources/rath. The server searches by vectors; its
// summary files are not hits. The order of equal hits is undefined. A search finds a note
// after its write has waited for the server's index. Each tenant and each memory needs its
// own root.
//
// A note's memory.Origin is a tag of its file, rath-origin=<hexadecimal JSON>. A search reads
// it with one more request per hit. For a server release without tags, set Options.NoTags.
//
// The server provides the abstracts and overviews of the notes below a name.
// memory.ReadLevel derives those of a single note.
//
// The package is tested against an in-process server that was written from the description
// of the API, not against OpenViking itself.
package openviking

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/memory"
)

const (
	// DefaultRoot is where notes are unless Options say otherwise.
	DefaultRoot = "viking://resources/rath"
	// DefaultTimeout bounds each request.
	DefaultTimeout = 30 * time.Second

	maxAnswer = 32 << 20
	maxNotes  = 100_000
	snippet   = 240 // characters
	suffix    = ".md"
)

// Options configure New.
type Options struct {
	// URL is the server's, such as http://127.0.0.1:1933.
	URL string
	// Key is sent as X-API-Key; "" sends none.
	Key string
	// Root is the directory of the notes; "" is DefaultRoot.
	Root string
	// Timeout bounds each request; 0 is DefaultTimeout.
	Timeout time.Duration
	// NoTags is for a server whose files have no tags. The store then keeps no memory.Origin,
	// so notes of quarantined sessions are not skipped.
	NoTags bool
}

// store is a memory.Store at a server.
type store struct {
	o    Options
	http *http.Client
}

// New returns the store below a root of a server. It sends no request.
func New(o *Options) (memory.Store, error) {
	s := &store{o: *o}
	u, err := url.Parse(s.o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("memory/openviking: URL: want one such as http://127.0.0.1:1933, without user, query and fragment")
	}
	s.o.URL = strings.TrimRight(s.o.URL, "/")
	s.o.Root = strings.TrimRight(cmp.Or(s.o.Root, DefaultRoot), "/")
	if !strings.HasPrefix(s.o.Root, "viking://") || len(s.o.Root) == len("viking://") {
		return nil, fmt.Errorf("memory/openviking: root %q: want a directory such as %s", s.o.Root, DefaultRoot)
	}
	if s.o.Timeout <= 0 {
		s.o.Timeout = DefaultTimeout
	}
	// Another host would get the key.
	s.http = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return s, nil
}

// file returns the file of a note, and dir the directory of the notes below its name.
func (s *store) file(u notebook.URI) (string, error) {
	for part := range strings.SplitSeq(u.Path, "/") {
		if strings.HasPrefix(part, ".") { // the server's own files
			return "", fmt.Errorf("%w %q: OpenViking keeps names that begin with a dot for itself", memory.ErrInvalidURI, u.String())
		}
	}
	return s.dir(u) + suffix, nil
}

func (s *store) dir(u notebook.URI) string {
	return s.o.Root + "/" + strings.TrimPrefix(u.String(), "memory://")
}

// note returns the name of the note in a file; ok is false for any other file.
func (s *store) note(file string) (uri string, ok bool) {
	rest, below := strings.CutPrefix(file, s.o.Root+"/")
	rest, text := strings.CutSuffix(rest, suffix)
	u, err := notebook.ParseURI("memory://" + rest)
	if !below || !text || err != nil {
		return "", false
	}
	_, err = s.file(u)
	return u.String(), err == nil
}

// originTag is the key of the tag that holds a note's Origin. Servers convert tags to lower
// case.
const originTag = "rath-origin="

// Write implements memory.Store. It returns when the server finds the note.
func (s *store) Write(ctx context.Context, uri, text string, from memory.Origin) error {
	n, err := notebook.NewNote(uri, text, from)
	if err != nil {
		return err
	}
	u, err := notebook.ParseURI(n.URI)
	if err != nil {
		return err
	}
	file, err := s.file(u)
	if err != nil {
		return err
	}
	body := map[string]any{"uri": file, "content": n.Text, "mode": "replace", "wait": true, "timeout": s.o.Timeout.Seconds()}
	if !s.o.NoTags {
		tags := []string{}
		if from != (memory.Origin{}) {
			data, err := json.Marshal(from)
			if err != nil {
				return err
			}
			tags = append(tags, originTag+hex.EncodeToString(data))
		}
		body["tags"], body["tag_mode"] = tags, "replace"
	}
	return s.ask(ctx, http.MethodPost, "/api/v1/content/write", nil, body, nil)
}

// origin returns the Origin of the note in a file. It is zero if the file has no such tag
// or does not exist.
func (s *store) origin(ctx context.Context, file string) (from memory.Origin, err error) {
	if s.o.NoTags {
		return from, nil
	}
	var of struct {
		Attrs struct {
			Tags []string `json:"tags"`
		} `json:"attrs"`
	}
	err = s.ask(ctx, http.MethodGet, "/api/v1/fs/attrs", url.Values{"uri": {file}}, nil, &of)
	if errors.Is(err, memory.ErrNotFound) {
		return from, nil
	}
	if err != nil {
		return from, fmt.Errorf("%w; for a server without tags set Options.NoTags", err)
	}
	for _, tag := range of.Attrs.Tags {
		value, ok := strings.CutPrefix(tag, originTag)
		if !ok {
			continue
		}
		data, err := hex.DecodeString(value)
		if err == nil {
			err = json.Unmarshal(data, &from)
		}
		if err != nil {
			return memory.Origin{}, fmt.Errorf("memory/openviking: tag %s of %s: %w: write the note again", strings.TrimSuffix(originTag, "="), file, err)
		}
	}
	return from, nil
}

// Read implements memory.Store.
func (s *store) Read(ctx context.Context, uri string) (text string, err error) {
	u, err := notebook.ParseURI(uri)
	if err != nil {
		return "", err
	}
	file, err := s.file(u)
	if err != nil {
		return "", err
	}
	err = s.ask(ctx, http.MethodGet, "/api/v1/content/read", url.Values{"uri": {file}, "raw": {"true"}}, nil, &text)
	return text, err
}

// Find implements memory.Store, by the server's own search. The score is the server's, in
// millionths.
func (s *store) Find(ctx context.Context, q memory.Query) ([]memory.Hit, error) {
	under, err := notebook.ParseDir(cmp.Or(q.Under, "memory://"))
	if err != nil {
		return nil, err
	}
	if q.Scores != "" {
		return nil, fmt.Errorf("memory/openviking: scores %q: %w: the server scores by vectors", q.Scores, errors.ErrUnsupported)
	}
	if strings.TrimSpace(q.Text) == "" {
		return nil, ctx.Err()
	}
	limit := min(q.Limit, memory.MaxLimit)
	if limit <= 0 {
		limit = memory.DefaultLimit
	}
	type match struct {
		URI      string  `json:"uri"`
		Abstract string  `json:"abstract"`
		Score    float64 `json:"score"`
	}
	var found struct {
		Memories  []match `json:"memories"`
		Resources []match `json:"resources"`
		Skills    []match `json:"skills"`
	}
	if err := s.ask(ctx, http.MethodPost, "/api/v1/search/find", nil, map[string]any{
		"query": strings.ToValidUTF8(q.Text, "\ufffd"), "target_uri": strings.TrimRight(s.dir(under), "/"), "limit": 2 * limit, // summaries of directories among them
	}, &found); err != nil {
		if errors.Is(err, memory.ErrNotFound) { // nothing was written there
			return nil, nil
		}
		return nil, err
	}
	var hits []memory.Hit
	seen := map[string]bool{}
	for _, m := range slices.Concat(found.Memories, found.Resources, found.Skills) {
		uri, ok := s.note(m.URI)
		score := int64(math.Round(1e6 * min(max(m.Score, 0), 1)))
		if !ok || seen[uri] || score <= 0 {
			continue
		}
		seen[uri] = true
		h := memory.Hit{URI: uri, Snippet: excerpt.Clip(strings.Join(strings.Fields(m.Abstract), " "), snippet), Score: score}
		if rest, ok := strings.CutPrefix(uri, "memory://session/"); ok {
			h.Session, _, _ = strings.Cut(rest, "/")
		}
		hits = append(hits, h)
	}
	slices.SortFunc(hits, func(a, b memory.Hit) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.URI, b.URI))
	})
	hits = hits[:min(len(hits), limit)]
	for i, h := range hits {
		u, err := notebook.ParseURI(h.URI)
		if err != nil {
			return nil, err
		}
		if hits[i].Origin, err = s.origin(ctx, s.dir(u)+suffix); err != nil {
			return nil, err
		}
	}
	return hits, nil
}

// ReadLevel is memory.ReadLevel. For a name without a note, it returns the server's own
// abstract or overview of the notes below the name.
func (s *store) ReadLevel(ctx context.Context, uri, level string) (text string, err error) {
	u, err := notebook.ParseDir(uri)
	if err != nil {
		return "", err
	}
	if level != memory.LevelFull {
		if u.Path != "" {
			_, err = s.Read(ctx, u.String())
		}
		if u.Path == "" || errors.Is(err, memory.ErrNotFound) {
			err = s.ask(ctx, http.MethodGet, "/api/v1/content/"+level, url.Values{"uri": {strings.TrimRight(s.dir(u), "/") + "/"}}, nil, &text)
			return text, err
		}
		if err != nil {
			return "", err
		}
	}
	return memory.ReadLevel(ctx, struct{ memory.Store }{s}, uri, level)
}

// List implements memory.Store.
func (s *store) List(ctx context.Context, uri string) ([]string, error) {
	u, err := notebook.ParseDir(uri)
	if err != nil {
		return nil, err
	}
	var all []string
	if u.Path != "" {
		switch _, err := s.Read(ctx, u.String()); {
		case err == nil:
			all = append(all, u.String())
		case !errors.Is(err, memory.ErrNotFound):
			return nil, err
		}
	}
	var entries []struct {
		URI string `json:"uri"`
		Dir bool   `json:"isDir"`
	}
	err = s.ask(ctx, http.MethodGet, "/api/v1/fs/ls", url.Values{
		"uri": {strings.TrimRight(s.dir(u), "/")}, "recursive": {"true"}, "output": {"original"}, "node_limit": {fmt.Sprint(2 * maxNotes)},
	}, nil, &entries)
	if err != nil && !errors.Is(err, memory.ErrNotFound) {
		return nil, err
	}
	if len(entries) >= 2*maxNotes {
		return nil, fmt.Errorf("%w: %s has more than %d files: use a longer name", memory.ErrTooLarge, uri, 2*maxNotes)
	}
	for _, e := range entries {
		if note, ok := s.note(e.URI); ok && !e.Dir {
			all = append(all, note)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// Delete implements memory.Store.
func (s *store) Delete(ctx context.Context, uri string) error {
	u, err := notebook.ParseDir(uri)
	if err != nil {
		return err
	}
	gone := []string{strings.TrimRight(s.dir(u), "/")}
	if u.Path != "" {
		file, err := s.file(u)
		if err != nil {
			return err
		}
		gone = append(gone, file)
	}
	for _, name := range gone {
		err := s.ask(ctx, http.MethodDelete, "/api/v1/fs", url.Values{"uri": {name}, "recursive": {"true"}}, nil, nil)
		if err != nil && !errors.Is(err, memory.ErrNotFound) {
			return err
		}
	}
	return nil
}

// ask sends a request and reads the result in the server's envelope.
func (s *store) ask(ctx context.Context, method, path string, query url.Values, body, result any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	at := s.o.URL + path
	if query != nil {
		at += "?" + query.Encode()
	}
	var sent io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(limited, method, at, sent)
	if err != nil {
		return err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if s.o.Key != "" {
		r.Header.Set("X-API-Key", s.o.Key)
	}
	fail := func(format string, args ...any) error {
		return fmt.Errorf("memory/openviking: %s of %s: %w", path, s.o.URL, fmt.Errorf(format, args...))
	}
	resp, err := s.http.Do(r)
	if err == nil {
		defer func() { _ = resp.Body.Close() }() // it was read
		var data []byte
		if data, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1)); err == nil {
			return s.answer(resp.StatusCode, data, result, fail)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if limited.Err() != nil {
		return fail("no answer within %v; try again, or raise Options.Timeout: %w", s.o.Timeout, context.DeadlineExceeded)
	}
	var inner *url.Error
	if errors.As(err, &inner) {
		err = inner.Err // drops the URL, which the message already has
	}
	return fail("%w; check that the server runs there", err)
}

func (s *store) answer(status int, data []byte, result any, fail func(string, ...any) error) error {
	if len(data) > maxAnswer {
		return fail("%w: the answer has more than %d bytes", memory.ErrTooLarge, maxAnswer)
	}
	var a struct {
		Status string          `json:"status"`
		Result json.RawMessage `json:"result"`
		Error  struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(data, &a); err != nil || a.Status != "ok" && a.Status != "error" {
		return fail("HTTP status %d with an answer that is not OpenViking's: %q; check the URL", status, excerpt.Clip(string(data), 80))
	}
	if a.Status == "error" || status/100 != 2 {
		why := excerpt.Clip(a.Error.Message, 200)
		switch a.Error.Code {
		case "NOT_FOUND":
			return fail("%w: %s", memory.ErrNotFound, why)
		case "INVALID_URI":
			return fail("%w: %s", memory.ErrInvalidURI, why)
		case "UNAUTHENTICATED", "PERMISSION_DENIED":
			return fail("%s: %s; check the key", a.Error.Code, why)
		}
		return fail("HTTP status %d, %s: %s", status, cmp.Or(excerpt.Clip(a.Error.Code, 40), "no code"), why)
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(a.Result, result); err != nil {
		return fail("the result violates the API: %w", err)
	}
	return nil
}

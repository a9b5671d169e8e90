package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/internal/web/access"
	"github.com/rathcluster/rath/internal/web/problem"
	"github.com/rathcluster/rath/internal/web/stream"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Options are the settings of an API; nil means the defaults.
type Options struct {
	// Release is the release that dossiers name.
	Release string
	// Logger receives the errors that are faults of the server; nil discards them.
	Logger *slog.Logger
	// Streams serves the events. Its creator closes it. nil makes streams that end with
	// their requests alone.
	Streams *stream.Streams
}

// API serves the routes below /api/. The context of each request carries its caller, see
// access.With. It is safe for concurrent use.
type API struct {
	mux     *http.ServeMux
	log     *slog.Logger
	release string
	openapi []byte
	routes  []route
	streams *stream.Streams
}

// New returns the routes.
func New(o *Options) (*API, error) {
	if o == nil {
		o = &Options{}
	}
	a := &API{mux: http.NewServeMux(), log: o.Logger, release: o.Release, streams: o.Streams}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	if a.streams == nil {
		a.streams = stream.New(a.log, problem.Write)
	}
	a.routes = append(a.table(), a.watches()...)
	var err error
	if a.openapi, err = describe(a.routes); err != nil {
		return nil, err
	}
	methods := map[string][]string{}
	for i := range a.routes {
		rt := &a.routes[i]
		a.mux.HandleFunc(rt.method+" "+rt.path, func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, rt) })
		methods[rt.path] = append(methods[rt.path], rt.method)
	}
	for path, allowed := range methods {
		allow := strings.Join(sorted(allowed), ", ")
		a.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", allow)
			problem.Write(w, r, &problem.Error{Code: problem.CodeMethod, Text: r.Method + " is no method of this address", Remedy: "use " + allow})
		})
	}
	a.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { problem.Write(w, r, errNoRoute) })
	return a, nil
}

// OpenAPI returns the description of the routes in OpenAPI 3.2, as JSON.
func (a *API) OpenAPI() []byte { return slices.Clone(a.openapi) }

var errNoRoute = &problem.Error{Code: problem.CodeNoRoute, Text: "there is no such address"}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

func (a *API) serve(w http.ResponseWriter, r *http.Request, rt *route) {
	ctx, cancel := context.WithTimeout(r.Context(), rt.within)
	defer cancel()
	rc := http.NewResponseController(w) // a writer of tests has no deadlines
	_ = rc.SetWriteDeadline(time.Now().Add(rt.within + withinMost))
	defer func() { _ = rc.SetWriteDeadline(time.Time{}) }()
	c := &call{w: w, r: r, caller: access.From(r.Context()), status: rt.status[0]}
	answer, err := a.handle(ctx, rc, c, rt)
	switch {
	case errors.Is(err, errStreamed):
	case errors.Is(err, errNotModified):
		w.WriteHeader(http.StatusNotModified)
	case err != nil:
		if d := problem.Of(err); d.Status == http.StatusInternalServerError {
			a.log.Error("a request failed", "method", rt.method, "route", rt.path, "tenant", c.caller.Tenant, "user", c.caller.User, "err", err)
		}
		problem.Write(w, r, err)
	default:
		a.send(c, answer)
	}
}

func (a *API) handle(ctx context.Context, rc *http.ResponseController, c *call, rt *route) (any, error) {
	if err := c.admit(ctx, rt); err != nil {
		return nil, err
	}
	for _, name := range placesOf(rt.path) {
		id := c.path(name)
		if name != "run" && name != "session" && name != "memory" || name == "run" && id == messages.Last {
			continue
		}
		if err := session.ValidID(name, id); err != nil {
			return nil, &strict.Error{Message: "address", Field: name, Problem: messages.Text(err), Remedy: "correct the address"}
		}
	}
	var err error
	if c.query, err = readQuery(c.r, rt); err != nil {
		return nil, err
	}
	if rt.limit > 0 {
		_ = rc.SetReadDeadline(time.Now().Add(rt.within))
		c.body, err = readBody(c.w, c.r, rt)
		_ = rc.SetReadDeadline(time.Time{})
		if err != nil {
			return nil, err
		}
	}
	return rt.handle(ctx, c)
}

// readQuery reads the parameters, each of which the route must take.
func readQuery(r *http.Request, rt *route) (url.Values, error) {
	bad := func(field, problem, remedy string) error {
		return &strict.Error{Message: "query", Field: field, Problem: problem, Remedy: remedy}
	}
	all, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, bad("", messageOf(err), "encode it as a URL does")
	}
	for _, name := range sorted(keys(all)) {
		values := all[name]
		if !slices.Contains(rt.params, name) {
			remedy := "this address takes none"
			if len(rt.params) > 0 {
				remedy = "this address takes " + strings.Join(rt.params, ", ")
			}
			return nil, bad(excerpt.Start(strconv.Quote(name), 80), "it is unknown", remedy)
		}
		p := parameters[name]
		if len(values) > 1 && !p.many {
			return nil, bad(name, "it is there twice", "send it once")
		}
		for _, v := range values {
			if p.values != nil && !slices.Contains(p.values, v) {
				return nil, bad(name, fmt.Sprintf("%q is none", excerpt.Start(v, 40)), "send one of "+strings.Join(p.values, ", "))
			}
			if p.pattern != nil && !p.pattern.MatchString(v) {
				return nil, bad(name, fmt.Sprintf("%q does not match %s", excerpt.Start(v, 40), p.pattern), "correct it, or leave it out")
			}
		}
	}
	return all, nil
}

func keys(all url.Values) (names []string) {
	for name := range all {
		names = append(names, name)
	}
	return names
}

func messageOf(err error) string { return excerpt.Start(err.Error(), 100) }

// readBody reads the body, which has the type that the route takes.
func readBody(w http.ResponseWriter, r *http.Request, rt *route) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, rt.limit))
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, &problem.Error{Code: run.CodeTooLarge, Text: fmt.Sprintf("the body has more than %d bytes", large.Limit), Remedy: "send large data as files, see rath submit -C"}
	}
	if err != nil {
		return nil, &strict.Error{Message: "body", Problem: messageOf(err), Remedy: "send it again"}
	}
	want := "application/json"
	if rt.body == octets {
		want = octets
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); len(body) > 0 && (err != nil || media != want) {
		return nil, &problem.Error{Code: problem.CodeMediaType, Text: fmt.Sprintf("the body has the type %q", excerpt.Start(r.Header.Get("Content-Type"), 80)), Remedy: "send " + want}
	}
	if len(body) == 0 && (rt.body == octets || typeOf(rt.body) != nil) {
		return nil, &strict.Error{Message: "body", Problem: "it is empty", Remedy: "send " + want}
	}
	return body, nil
}

// send writes an answer.
func (a *API) send(c *call, answer any) {
	h := c.w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
	d, ok := answer.(*document)
	if !ok {
		data, err := encode(answer)
		if err != nil {
			a.log.Error("an answer was not sent", "err", err)
			problem.Write(c.w, c.r, err)
			return
		}
		d = &document{media: "application/json", body: io.NopCloser(bytes.NewReader(data)), size: int64(len(data))}
	}
	h.Set("Content-Type", d.media)
	if d.name != "" && d.media != "application/json" && d.media != "application/schema+json" {
		h.Set("Content-Disposition", `attachment; filename="`+d.name+`"`)
		h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	}
	if d.size >= 0 {
		h.Set("Content-Length", strconv.FormatInt(d.size, 10))
	}
	c.w.WriteHeader(c.status)
	var err error
	if d.write != nil {
		err = d.write(c.w)
	} else {
		_, err = io.Copy(c.w, d.body)
		err = errors.Join(err, d.body.Close())
	}
	if err != nil && c.r.Context().Err() == nil {
		a.log.Warn("an answer was cut off", "route", c.r.Pattern, "err", err)
		// The connection ends, so that no client takes the part for the whole.
		panic(http.ErrAbortHandler)
	}
}

// encode writes an answer as JSON; a reply of the fleet is JSON already.
func encode(answer any) ([]byte, error) {
	if raw, ok := answer.(json.RawMessage); ok {
		return raw, nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(answer); err != nil {
		return nil, fmt.Errorf("api: %T: %w", answer, err)
	}
	if b.Len() > maxAnswer {
		return nil, fmt.Errorf("the answer has more than %d bytes: %w; ask for a smaller part", maxAnswer, session.ErrTooLarge)
	}
	return b.Bytes(), nil
}

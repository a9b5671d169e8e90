package pages

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/web/access"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

//go:embed static templates
var files embed.FS

// Options are the surroundings of the pages.
type Options struct {
	// Stream answers a request with the updates of a run as server-sent events, or of all
	// runs of the tenant for "". nil is pages without updates.
	Stream func(w http.ResponseWriter, r *http.Request, id run.ID)
	// FormToken returns the token of the forms of a request, the field form_token. nil is
	// forms without one.
	FormToken func(ctx context.Context) string
	// URL is the address under which browsers reach the pages, for the commands that a
	// page shows; "" is a placeholder.
	URL string
	// Log receives the errors that are no one's answer. It must not be nil.
	Log *slog.Logger
}

// Pages are the pages of all tenants. Their requests carry a caller, see access.With.
type Pages struct {
	Options
	mux    *http.ServeMux
	sheets map[string]*template.Template
	assets map[string]asset
}

type asset struct {
	data         []byte
	etag, format string
}

const (
	// maxForm bounds the body of a form, and pageWithin the time of a request.
	maxForm    = 2 << 20
	pageWithin = 20 * time.Second
)

// New returns the handler of /t/, /static/ and /events/.
func New(o *Options) *Pages {
	p := &Pages{Options: *o, mux: http.NewServeMux(), sheets: map[string]*template.Template{}, assets: map[string]asset{}}
	base := template.Must(template.New("").Funcs(functions).ParseFS(files, "templates/frame.tmpl", "templates/parts.tmpl"))
	for _, name := range []string{"questions", "runs", "run", "step", "files", "sessions", "session", "fleet", "problem"} {
		p.sheets[name] = template.Must(template.Must(base.Clone()).ParseFS(files, "templates/"+name+".tmpl"))
	}
	for name, format := range map[string]string{"rath.css": "text/css; charset=utf-8", "rath.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"} {
		data, err := files.ReadFile("static/" + name)
		if err != nil {
			panic(err) // the program was built without it
		}
		sum := sha256.Sum256(data)
		p.assets[name] = asset{data, `"` + hex.EncodeToString(sum[:8]) + `"`, format}
	}
	for pattern, h := range map[string]func(*visit) error{
		"GET /events/t/{tenant}/runs":             (*visit).events,
		"GET /events/t/{tenant}/runs/{run}":       (*visit).events,
		"GET /t/{tenant}/{$}":                     (*visit).home,
		"GET /t/{tenant}/questions":               (*visit).questions,
		"GET /t/{tenant}/questions/{run}/{step}":  (*visit).questions,
		"POST /t/{tenant}/questions/{run}/{step}": (*visit).answer,
		"GET /t/{tenant}/runs":                    (*visit).runs,
		"POST /t/{tenant}/runs":                   (*visit).stopMany,
		"GET /t/{tenant}/runs/{run}":              (*visit).run,
		"POST /t/{tenant}/runs/{run}/{verb}":      (*visit).act,
		"GET /t/{tenant}/runs/{run}/step/{step}":  (*visit).step,
		"GET /t/{tenant}/runs/{run}/files":        (*visit).files,
		"GET /t/{tenant}/runs/{run}/file":         (*visit).download,
		"GET /t/{tenant}/runs/{run}/tar":          (*visit).tar,
		"GET /t/{tenant}/sessions":                (*visit).sessions,
		"GET /t/{tenant}/sessions/{session}":      (*visit).session,
		"GET /t/{tenant}/fleet":                   (*visit).fleet,
		"POST /t/{tenant}/fleet/{verb}/{name}":    (*visit).operate,
	} {
		p.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, h) })
	}
	p.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		p.serve(w, r, func(*visit) error { return errNothing })
	})
	p.mux.HandleFunc("GET /static/{name}", p.asset)
	return p
}

// ServeHTTP implements http.Handler.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	Secure(w.Header())
	p.mux.ServeHTTP(w, r)
}

// Policy is the content security policy of the pages.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types rath"

// Secure sets the headers of each answer to a browser.
func Secure(h http.Header) {
	h.Set("Content-Security-Policy", Policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// asset serves the sheet and the script, which hold no data: anyone may read them.
func (p *Pages) asset(w http.ResponseWriter, r *http.Request) {
	a, ok := p.assets[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", a.format)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", a.etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.data))
}

// visit is one request for a page.
type visit struct {
	*access.Caller
	p   *Pages
	w   http.ResponseWriter
	r   *http.Request
	ctx context.Context
	now time.Time

	texts map[string]string // of files by their head and path
}

func (p *Pages) serve(w http.ResponseWriter, r *http.Request, h func(*visit) error) {
	ctx, cancel := context.WithTimeout(r.Context(), pageWithin)
	defer cancel()
	v := &visit{access.From(ctx), p, w, r, ctx, time.Now(), map[string]string{}}
	err := errNothing
	if tenant := r.PathValue("tenant"); tenant == "" || tenant == string(v.Tenant) {
		if r.Method == http.MethodPost {
			r.Body = http.MaxBytesReader(w, r.Body, maxForm)
			err = r.ParseForm()
		}
		if err == nil || r.Method != http.MethodPost {
			err = h(v)
		}
	}
	if err != nil && r.Context().Err() == nil {
		v.problem(err)
	}
}

// errNothing is the answer for whatever does not exist, was pruned or belongs to another
// tenant.
var errNothing = errors.New("there is nothing here")

// base is the prefix of the tenant's pages.
func (v *visit) base() string { return "/t/" + string(v.Tenant) }

// frame is the data of each page; Body is the page's own.
type frame struct {
	*visit
	Title   string
	Here    string // the entry of the navigation
	Class   string // of the body
	Waiting int    // open questions
	More    bool   // there are more of them
	Notice  *notice
	Same    []string // the commands that do the same
	Keys    []key
	Body    any
}

type key struct{ Keys, Does string }

// notice is a remark above a page about the last action.
type notice struct{ Class, Icon, Bold, Text, Href, Link string }

// Base, Token, Page and Role are for the templates.
func (f *frame) Base() string    { return f.base() }
func (f *frame) Token() string   { return f.p.formToken(f.ctx) }
func (f *frame) When() time.Time { return f.now }
func (f *frame) Live() bool      { return f.p.Stream != nil }

// Denied returns the roles that a verb takes, if the caller has none of them.
func (f *frame) Denied(verb string) string {
	denied := new(access.Denied)
	if !errors.As(f.May(verb), &denied) {
		return ""
	}
	names := make([]string, 0, len(denied.Roles))
	for _, r := range denied.Roles {
		names = append(names, string(r))
	}
	return strings.Join(names, " or ")
}

// show renders a page with a status. The request for a fragment gets the page's live part
// alone.
func (v *visit) show(status int, sheet string, f *frame) error {
	f.visit = v
	if f.Here != "" {
		v.count(f)
	}
	name := "frame"
	if v.r.URL.Query().Has("live") && f.Here != "" {
		name = "live"
		if status == http.StatusConflict { // a question was answered: its list is as it should be
			status = http.StatusOK
		}
	}
	var b bytes.Buffer
	if err := v.p.sheets[sheet].ExecuteTemplate(&b, name, f); err != nil {
		return fmt.Errorf("pages: %s: %w", sheet, err)
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(status)
	_, err := v.w.Write(b.Bytes())
	if err != nil {
		v.p.Log.Debug("a browser did not take its page", "error", err)
	}
	return nil
}

// countedRuns bounds the runs among which open questions are counted.
const countedRuns = 200

// count counts the open questions, for the navigation and the title.
func (v *visit) count(f *frame) {
	if f.Waiting > 0 {
		return
	}
	runs, err := v.Client.Runs.List(v.ctx, &client.RunsOptions{States: []run.State{run.Waiting, run.NeedsReview}, Limit: countedRuns})
	if err != nil {
		return // the page itself gives the error, if it needs the nodes
	}
	f.More = len(runs) == countedRuns
	for i := range runs {
		if v.Own(&runs[i]) {
			f.Waiting += len(asksOf(&runs[i]))
		}
	}
}

// problem answers with a page about an error.
func (v *visit) problem(err error) {
	status, head, text := statusOf(err)
	if status == http.StatusInternalServerError {
		v.p.Log.Error("a page failed", "path", v.r.URL.Path, "error", err)
	}
	f := &frame{Title: head, Body: struct{ Head, Text string }{head, text}}
	if err := v.show(status, "problem", f); err != nil {
		v.p.Log.Error("the page of an error failed", "error", err)
	}
}

// statusOf returns the status of an error, a head and a text for users.
func statusOf(err error) (status int, head, text string) {
	denied := new(access.Denied)
	large := new(http.MaxBytesError)
	switch {
	case errors.Is(err, errNothing), errors.Is(err, run.ErrUnknownRun), errors.Is(err, session.ErrNotFound), errors.Is(err, session.ErrTenant):
		return http.StatusNotFound, "There is nothing here", "It does not exist, was pruned, or belongs to another tenant: the answer is the same for all three."
	case errors.As(err, &denied), errors.Is(err, client.ErrDenied):
		return http.StatusForbidden, "Your role does not include this", messages.Text(err)
	case errors.As(err, &large), errors.Is(err, session.ErrTooLarge):
		return http.StatusRequestEntityTooLarge, "That is too large", messages.Text(err)
	case errors.Is(err, run.ErrState):
		return http.StatusConflict, "That is not possible now", messages.Text(err)
	case errors.Is(err, run.ErrMalformed), errors.Is(err, errForm):
		return http.StatusUnprocessableEntity, "That was not understood", messages.Text(err)
	case errors.Is(err, client.ErrNoAnswer), errors.Is(err, client.ErrUnreachable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, run.ErrBusy):
		return http.StatusServiceUnavailable, "The fleet does not answer", messages.Text(err) + ". Nothing was changed; try again in a moment."
	}
	return http.StatusInternalServerError, "The page could not be made", "The router's log has the reason."
}

// errForm means that a form was not filled in as it has to be.
var errForm = errors.New("pages: the form")

// home leads to the questions.
func (v *visit) home() error { return v.to(v.base() + "/questions") }

// to leads to another page of this server.
func (v *visit) to(path string) error {
	http.Redirect(v.w, v.r, path, http.StatusSeeOther)
	return nil
}

// curl returns the request that does the same as a page.
func (v *visit) curl(method, path string) string {
	url := v.p.URL
	if url == "" {
		url = "$RATH_URL"
	}
	if method != http.MethodGet {
		return "curl -X " + method + " -H \"$RATH_AUTH\" " + url + "/api/v1" + path
	}
	return "curl -H \"$RATH_AUTH\" " + url + "/api/v1" + path
}

func (p *Pages) formToken(ctx context.Context) string {
	if p.FormToken == nil {
		return ""
	}
	return p.FormToken(ctx)
}

// events sends the updates of a page. A narrow token has none of the whole tenant.
func (v *visit) events() error {
	id := run.ID(v.r.PathValue("run"))
	if v.p.Stream == nil || id == "" && v.Narrow() {
		return errNothing
	}
	if id != "" {
		if _, err := v.Client.Runs.Get(v.ctx, id); err != nil {
			return err
		}
		if err := v.Sees(v.ctx, id); err != nil {
			return err
		}
	}
	v.p.Stream(v.w, v.r, id)
	return nil
}

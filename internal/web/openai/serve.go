package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/web/access"
	"github.com/rathcluster/rath/internal/web/problem"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// Prefix is the prefix of the door's paths.
const Prefix = "/openai/v1/"

const (
	// maxBody bounds a request: clients send the whole history.
	maxBody = 16 << 20
	// bodyWithin bounds the reading of a request, and writeWithin each write.
	bodyWithin, writeWithin = time.Minute, 10 * time.Second
)

// Options are the settings of a Door; nil means the defaults.
type Options struct {
	// URL is the address of the pages, for links to questions.
	URL string
	// Logger receives the errors that are faults of the server; nil discards them.
	Logger *slog.Logger
}

// Door serves the protocol. The context of each request carries its caller, see access.With.
// It is safe for concurrent use.
type Door struct {
	mux *http.ServeMux
	log *slog.Logger
	url string

	mu       sync.Mutex
	reserved map[run.ID]bool // ids of tasks on their way
}

// New returns a Door.
func New(o *Options) *Door {
	if o == nil {
		o = &Options{}
	}
	d := &Door{mux: http.NewServeMux(), log: o.Logger, url: o.URL, reserved: map[run.ID]bool{}}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	for at, handle := range map[string]func(ctx context.Context, c *call) (any, error){
		"GET models":                             listModels,
		"GET models/{model}":                     showModel,
		"POST chat/completions":                  d.chat,
		"POST responses":                         d.createResponse,
		"GET responses/{response}":               d.showResponse,
		"POST responses/{response}/cancel":       d.cancelResponse,
		"GET responses/{response}/input_items":   d.listInput,
		"POST conversations":                     createConversation,
		"GET conversations/{conversation}":       showConversation,
		"GET conversations/{conversation}/items": listItems,
	} {
		method, path, _ := strings.Cut(at, " ")
		d.mux.HandleFunc(method+" "+Prefix+path, func(w http.ResponseWriter, r *http.Request) { d.serve(w, r, handle) })
	}
	d.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		problem.Write(w, problem.With(r, Errors), &problem.Error{
			Code: problem.CodeNoRoute, Text: fmt.Sprintf("%s %s is not served", r.Method, excerpt.Start(r.URL.Path, 80)), Remedy: "see the table in docs/openai.md",
		})
	})
	return d
}

// ServeHTTP implements http.Handler.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.mux.ServeHTTP(w, r) }

// call is a request on its way through a handler.
type call struct {
	w      http.ResponseWriter
	r      *http.Request
	rc     *http.ResponseController
	caller *access.Caller
	body   []byte
}

// errStreamed means that the answer is written.
var errStreamed = errors.New("openai: the answer is written")

func (d *Door) serve(w http.ResponseWriter, r *http.Request, handle func(ctx context.Context, c *call) (any, error)) {
	r = problem.With(r, Errors)
	c := &call{w: w, r: r, rc: http.NewResponseController(w), caller: access.From(r.Context())}
	_ = c.rc.SetWriteDeadline(time.Time{}) // a writer of tests has no deadlines
	defer func() { _ = c.rc.SetReadDeadline(time.Time{}) }()
	err := c.read()
	var answer any
	if err == nil {
		answer, err = handle(r.Context(), c)
	}
	switch {
	case err == nil:
		c.send(answer)
	case errors.Is(err, errStreamed), r.Context().Err() != nil:
	default:
		if problem.Of(err).Status == http.StatusInternalServerError {
			d.log.Warn("a request failed", "path", r.URL.Path, "tenant", c.caller.Tenant, "user", c.caller.User, "err", err)
		}
		_ = c.rc.SetWriteDeadline(time.Now().Add(writeWithin))
		problem.Write(w, r, err)
	}
}

// read reads the body.
func (c *call) read() (err error) {
	if c.r.Method != http.MethodPost {
		return nil
	}
	_ = c.rc.SetReadDeadline(time.Now().Add(bodyWithin))
	c.body, err = io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxBody))
	_ = c.rc.SetReadDeadline(time.Time{})
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &problem.Error{Code: run.CodeTooLarge, Text: fmt.Sprintf("the body has more than %d bytes", large.Limit), Remedy: "send fewer messages, or name the previous response"}
	}
	if err != nil {
		return wrong("", "the body ends early", "send it again")
	}
	return nil
}

// send writes an answer.
func (c *call) send(answer any) {
	_ = c.rc.SetWriteDeadline(time.Now().Add(writeWithin))
	c.w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(c.w)
	e.SetEscapeHTML(false)
	_ = e.Encode(answer) // the client has gone if it fails
}

// stream begins an answer of server-sent events.
func (c *call) stream() {
	h := c.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	c.w.WriteHeader(http.StatusOK)
}

// event writes server-sent events: names and values alternate. "" is a nameless event, and
// no value a comment, which keeps the connection open.
func (c *call) event(pairs ...any) error {
	_ = c.rc.SetWriteDeadline(time.Now().Add(writeWithin))
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if len(pairs) == 0 {
		b.WriteString(": \n")
	}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i] != "" {
			fmt.Fprintf(&b, "event: %s\n", pairs[i])
		}
		b.WriteString("data: ")
		if text, done := pairs[i+1].(string); done {
			b.WriteString(text + "\n")
		} else if err := e.Encode(pairs[i+1]); err != nil { // ends with a line feed
			return err
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(c.w, b.String())
	if err == nil {
		err = c.rc.Flush()
	}
	return err
}

// workflow returns the workflow that is the model of a request.
func (c *call) workflow(ctx context.Context, model string) (*messages.Workflow, error) {
	all, err := c.workflows(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(w messages.Workflow) bool { return w.Name == model })
	if i < 0 {
		return nil, &problem.Error{Code: problem.CodeUnknownWorkflow, Text: fmt.Sprintf("the model %q does not exist", excerpt.Start(model, 80)), Remedy: "name a workflow that GET models lists"}
	}
	return &all[i], nil
}

// workflows returns the workflows that the caller may submit.
func (c *call) workflows(ctx context.Context) ([]messages.Workflow, error) {
	if c.caller.May(access.VerbSubmit) != nil {
		return nil, nil
	}
	all, err := c.caller.Client.Workflows(ctx)
	return slices.DeleteFunc(all, func(w messages.Workflow) bool { return c.caller.Narrow() && !slices.Contains(c.caller.Only, w.Name) }), err
}

func modelOf(c *call, w *messages.Workflow) object {
	return object{"id": w.Name, "object": "model", "created": 0, "owned_by": string(c.caller.Tenant)}
}

func listModels(ctx context.Context, c *call) (any, error) {
	all, err := c.workflows(ctx)
	models := []object{}
	for i := range all {
		models = append(models, modelOf(c, &all[i]))
	}
	return object{"object": "list", "data": models}, err
}

func showModel(ctx context.Context, c *call) (any, error) {
	w, err := c.workflow(ctx, c.r.PathValue("model"))
	if err != nil {
		return nil, err
	}
	return modelOf(c, w), nil
}

// retry reports whether a client's library repeats a request.
func (c *call) retry() bool {
	count := c.r.Header.Get("X-Stainless-Retry-Count")
	return count != "" && count != "0"
}

// digestOf returns the digest of a request by which its retry is known.
func (c *call) digestOf() string {
	if key := c.r.Header.Get("Idempotency-Key"); key != "" {
		return digest("key", key)
	}
	return digest(c.r.URL.Path, string(c.body))
}

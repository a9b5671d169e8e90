package api

import (
	"context"
	"net/http"
	"reflect"
	"regexp"
	"time"
)

// route is a row of the table.
type route struct {
	method, path string
	// verb is the verb of package messages, or access.VerbSubmit, that the caller's role must
	// include; "" is a route that reads, as every role may.
	verb    string
	summary string
	narrow  narrow
	// commands are the commands of rath that the route serves.
	commands []string
	params   []string // names of parameters of the query
	// body is the schema of package messages that a request's body has, or a Go type of this
	// package; answer likewise. An answer of nil is a document of one of media.
	body, answer any
	media        []string
	status       []int // of success, the usual one first
	kept         bool  // an answer has a tag, and 304 is one of its statuses
	limit        int64
	within       time.Duration
	handle       func(ctx context.Context, c *call) (any, error)
}

// The limits of a request without limits of its own.
const (
	maxBody    = 512 << 10        // bytes
	maxAnswer  = 32 << 20         // bytes of an answer that is JSON
	withinMost = 35 * time.Second // a request of package client gives up before that
	withinLong = 10 * time.Minute // for documents, which stream
)

// get is a row for reading. answer is the name of a schema, or a value of a type.
func get(path, summary string, answer any, handle func(ctx context.Context, c *call) (any, error)) route {
	return route{
		method: http.MethodGet, path: prefix + path, summary: summary, answer: answer, status: []int{http.StatusOK},
		within: withinMost, handle: handle,
	}
}

// act is a row that changes something.
func act(method, path, verb, summary string, body, answer any, handle func(ctx context.Context, c *call) (any, error)) route {
	return route{
		method: method, path: prefix + path, verb: verb, summary: summary, body: body, answer: answer, status: []int{http.StatusOK},
		limit: maxBody, within: withinMost, handle: handle,
	}
}

const prefix = "/api/v1"

// serves names the commands of rath that the route serves.
func (r route) serves(commands ...string) route {
	r.commands = commands
	return r
}

// takes names the parameters of the query.
func (r route) takes(params ...string) route {
	r.params = params
	return r
}

// lets a narrow token use the route.
func (r route) lets(n narrow) route {
	r.narrow = n
	return r
}

// answers with documents of one of some media types.
func (r route) answers(media ...string) route {
	r.media, r.within = media, withinLong
	return r
}

// accepts a body of at most limit bytes, and takes a long time.
func (r route) accepts(limit int64) route {
	r.limit, r.within = limit, withinLong
	return r
}

// keeps an answer in the caller's cache.
func (r route) keeps() route {
	r.kept = true
	return r
}

// succeeds with other statuses.
func (r route) succeeds(status ...int) route {
	r.status = status
	return r
}

// param is a parameter of a query. One name has one meaning in all routes.
type param struct {
	doc     string
	kind    string // string, integer or boolean
	pattern *regexp.Regexp
	values  []string
	many    bool
}

var nameLike = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

var parameters = map[string]param{
	"after":    {doc: "the next of the page before; absent is the first page", kind: "string"},
	"limit":    {doc: "the number of rows of a page at most", kind: "integer"},
	"where":    {doc: "a selector, such as tool=grep and state=failed", kind: "string"},
	"state":    {doc: "runs in one of these states", kind: "string", many: true, values: []string{"queued", "running", "waiting", "needs_review", "succeeded", "failed", "cancelled", "timed_out"}},
	"workflow": {doc: "the workflow of the runs", kind: "string", pattern: nameLike},
	"by":       {doc: "the user who submitted the runs, or had them submitted again", kind: "string", pattern: nameLike},
	"wait_s":   {doc: "how many seconds the answer waits for the end of the run, at most 30", kind: "integer"},
	"version":  {doc: "a version of the session; absent is the newest", kind: "integer"},
	"picture":  {doc: "adds a picture of the tree", kind: "string", values: []string{"text", "mermaid", "svg"}},
	"step":     {doc: "a step of the run, such as 2.0", kind: "string"},
	"row":      {doc: "a row of the session, counted from 0", kind: "integer"},
	"file":     {doc: "a file of the session", kind: "string"},
	"path":     {doc: "a path of the head", kind: "string"},
	"line":     {doc: "a line of the file, counted from 1", kind: "integer"},
	"form":     {doc: "the form of the document", kind: "string", values: []string{"html", "md", "json"}},
	"from":     {doc: "the head to compare with; absent is no files", kind: "string", pattern: regexp.MustCompile(`^[0-9a-f]{64}$`)},
	"under":    {doc: "notes at and below this name", kind: "string"},
	"text":     {doc: "the words of the search", kind: "string"},
	"level":    {doc: "the extent of the text", kind: "string", values: []string{"abstract", "overview", "full"}},
	"uri":      {doc: "the name of the note, such as memory://user/preferences/colours", kind: "string"},
	"since":    {doc: "the id of an event, or end: the stream begins behind it; a Last-Event-ID precedes it", kind: "string"},
	"kind":     {doc: "events of one of these kinds, such as run.ended", kind: "string", many: true, pattern: regexp.MustCompile(`^[a-z]+\.[a-z]+$`)},
	"at":       {doc: "the next of the page before, as JSON", kind: "string"},
}

// typeOf returns the Go type of a body or an answer that no schema of package messages
// describes; nil for one that has a schema, and for none.
func typeOf(v any) reflect.Type {
	if _, ok := v.(string); ok || v == nil {
		return nil
	}
	return reflect.TypeOf(v)
}

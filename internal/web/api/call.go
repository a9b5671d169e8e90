package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/web/access"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// call is a request on its way through a handler.
type call struct {
	w      http.ResponseWriter
	r      *http.Request
	caller *access.Caller
	query  url.Values
	body   []byte // of a route that takes one
	status int    // of the answer, if there is no error
}

func (c *call) client() *client.Client { return c.caller.Client }

// path returns a part of the address.
func (c *call) path(name string) string { return c.r.PathValue(name) }

// run returns the run of the address.
func (c *call) run() run.ID { return run.ID(c.path("run")) }

// text returns a parameter of the query, "" without one.
func (c *call) text(name string) string { return c.query.Get(name) }

// number returns a parameter of the query that counts, zero without one.
func (c *call) number(name string, most uint64) (uint64, error) {
	text := c.text(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > most {
		return 0, &strict.Error{Message: "query", Field: name, Problem: fmt.Sprintf("%q is not of 0 to %d", excerpt.Start(text, 40), most), Remedy: "send a whole number, or leave it out"}
	}
	return n, nil
}

// maxSequence is the largest position in a list of the fleet that a JSON number holds.
const maxSequence = 1<<53 - 1

// page returns the query for a page of a list: the parameters after and limit.
func (c *call) page() (q wire.Query, err error) {
	if q.After, err = c.number("after", maxSequence); err != nil {
		return q, err
	}
	limit, err := c.number("limit", wire.MaxLimit)
	q.Limit = int(limit)
	if q.Limit == 0 {
		q.Limit = defaultPage
	}
	return q, err
}

// defaultPage is the number of rows of a page without a limit.
const defaultPage = 100

// decode reads the body of a request strictly; an absent one leaves into as it is.
func (c *call) decode(message string, into any) error {
	if len(c.body) == 0 {
		return nil
	}
	return strict.Decode(messages.MaxMessage, message, c.body, into)
}

// control reads the body of a control request and checks that it fits the verb.
func (c *call) control(verb string) (messages.Control, error) {
	d, err := messages.DecodeControl(c.body)
	if err == nil {
		err = d.Check(verb)
	}
	return d, err
}

// ask sends a query and returns the reply as it came.
func (c *call) ask(ctx context.Context, verb string, q wire.Query) (any, error) {
	return c.client().Query(ctx, verb, q)
}

// errNotModified answers that the caller's copy is the current one.
var errNotModified = errors.New("api: not modified")

// unchanged sets the tag of an answer that never changes, and returns errNotModified if the
// caller has it.
func (c *call) unchanged(tag string) error {
	tag = `"` + tag + `"`
	c.w.Header().Set("ETag", tag)
	c.w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	for have := range strings.SplitSeq(c.r.Header.Get("If-None-Match"), ",") {
		if have = strings.TrimSpace(have); have == tag || have == "*" || have == "W/"+tag {
			return errNotModified
		}
	}
	return nil
}

// document is an answer that is no JSON of the table. Its body is closed after it was sent.
type document struct {
	media string
	name  string // of the file as which a browser stores it
	body  io.ReadCloser
	size  int64 // -1 if it is not known
	// write writes the document in place of a body.
	write func(w io.Writer) error
}

// text returns a document that is in memory.
func text(media, name string, data []byte) *document {
	return &document{media: media, name: name, body: io.NopCloser(bytes.NewReader(data)), size: int64(len(data))}
}

// named is the answer to a request that made or found a run.
type named struct {
	Run run.ID `json:"run"`
}

// done is the answer to a control request after its commit.
func done(err error) (any, error) { return wire.Answer{Done: true}, err }

// narrow is what a route lets a narrow token name: "" is nothing.
type narrow string

const (
	byRun     narrow = "run"     // the run of the address
	bySession narrow = "session" // the session of the address
	byItself  narrow = "itself"  // the handler checks
	byAll     narrow = "all"     // the answer is the same for each caller
)

// admit returns an error for a request that the caller's token or role does not include. For
// a narrow token the other objects do not exist.
func (c *call) admit(ctx context.Context, rt *route) error {
	if c.caller.Narrow() {
		switch rt.narrow {
		case "":
			return errNoRoute
		case byRun:
			err := c.caller.Sees(ctx, c.run())
			if errors.Is(err, run.ErrUnknownRun) {
				return fmt.Errorf("run %s: %w", c.run(), run.ErrUnknownRun) // one text for both kinds
			}
			if err != nil {
				return err
			}
		case bySession:
			if err := c.seesSession(ctx, c.path("session")); err != nil {
				return err
			}
		}
	}
	if rt.verb == "" {
		return nil
	}
	return c.caller.May(rt.verb)
}

// seesSession returns session.ErrNotFound for a session on which none of the runs of a
// narrow token worked.
func (c *call) seesSession(ctx context.Context, id string) error {
	if !c.caller.Narrow() {
		return nil
	}
	if err := session.ValidID("session", id); err != nil {
		return err
	}
	for after := uint64(0); ; {
		page, err := c.runs(ctx, wire.Query{Where: "session=" + id + " and by=" + c.caller.User, After: after, Limit: defaultPage})
		if err != nil {
			return err
		}
		for i := range page.Runs {
			if own, err := c.caller.Owns(ctx, &page.Runs[i]); own || err != nil {
				return err
			}
		}
		if after = page.Next; after == 0 {
			return fmt.Errorf("session %s: %w", id, session.ErrNotFound)
		}
	}
}

// runs returns a page of runs.
func (c *call) runs(ctx context.Context, q wire.Query) (page wire.Runs, err error) {
	data, err := c.client().Query(ctx, messages.QueryRuns, q)
	if err == nil {
		err = json.Unmarshal(data, &page)
	}
	return page, err
}

// roles returns the names of the roles that include a verb.
func roles(verb string) string {
	var names []string
	for _, r := range permission.RolesFor(verb) {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}

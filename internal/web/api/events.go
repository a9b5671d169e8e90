package api

import (
	"context"
	"errors"

	"github.com/rathcluster/rath/internal/web/stream"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// eventStream is the media type of server-sent events.
const eventStream = "text/event-stream"

// errStreamed means that a stream has answered the request, or refused it.
var errStreamed = errors.New("api: answered by a stream")

// watch returns the handler of a stream, whose address selects the events.
func (a *API) watch(selected func(c *call) stream.Selection) func(ctx context.Context, c *call) (any, error) {
	return func(_ context.Context, c *call) (any, error) {
		s := selected(c)
		s.After = c.text("since")
		s.Workflows = c.query["workflow"]
		for _, state := range c.query["state"] {
			s.States = append(s.States, run.State(state))
		}
		for _, kind := range c.query["kind"] {
			s.Kinds = append(s.Kinds, messages.EventKind(kind))
		}
		a.streams.Serve(c.w, c.r, s)
		return nil, errStreamed
	}
}

// watches returns the rows of streams.
func (a *API) watches() []route {
	row := func(path, summary string, selected func(c *call) stream.Selection) route {
		return get(path, summary, nil, a.watch(selected)).takes("since", "kind", "state", "workflow").answers(eventStream).succeeds(200, 204)
	}
	return []route{
		row("/events", "Watch the events of the tenant", func(*call) stream.Selection { return stream.Selection{} }).lets(byItself).serves("cluster tail"),
		row("/runs/{run}/events", "Watch the events of a run, and the text of its agents as it comes", func(c *call) stream.Selection { return stream.Selection{Run: c.run()} }).lets(byRun).serves("run", "show"),
		row("/sessions/{session}/events", "Watch the events of a session", func(c *call) stream.Selection { return stream.Selection{Session: c.path("session")} }).lets(bySession).serves("show"),
		row("/sessions/{session}/tree/events", "Watch the events of a session's tree", func(c *call) stream.Selection { return stream.Selection{Tree: c.path("session")} }).lets(bySession).serves("cluster tail"),
	}
}

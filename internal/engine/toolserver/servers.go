package toolserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/engine/lease"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// Server is a program that has tools, such as an MCP server.
type Server interface {
	// Sandboxed reports whether it runs in the sandbox of a session.
	Sandboxed() bool
	// Connect starts it, or connects to it. box is nil unless the server is Sandboxed.
	Connect(ctx context.Context, box sandbox.Sandbox) (Conn, error)
}

// Conn is one start of a Server. Its methods may be called concurrently.
type Conn interface {
	// Tools returns the tools, and a remark for each that cannot be used.
	Tools(ctx context.Context) (specs []tool.Spec, remarks []string, err error)
	// Call calls a tool. An error that wraps session.ErrUnavailable means that the effect
	// of the call is unknown, and that the Conn is unusable. If the error also wraps
	// tool.ErrNotMade, the call had no effect.
	Call(ctx context.Context, name string, c tool.Call) (tool.Result, error)
	// Close waits until everything that Connect started has ended.
	Close() error
}

// Servers are the running tool servers of an execution: one for each session and name.
type Servers struct {
	// Host is the execution. It is set before the first use.
	Host Host

	mu sync.Mutex
	of map[serverKey]*instance
	// contents are digests of the tools of a server, by its name: the recorded ones
	// first, then each other version that the run was warned about.
	contents map[string][]string
}

// Host has the functions of an execution for its servers.
type Host interface {
	// ToolServer returns the node's server of a name.
	ToolServer(name string) (Server, error)
	// ShareSandbox notes that a server runs in the sandbox of a session.
	ShareSandbox(k session.Key)
	// Warn records a remark for the author of the workflow.
	Warn(ctx context.Context, text string)
}

type serverKey struct {
	session session.Key
	name    string
}

// instance is one server of Servers. mu is held during its start.
type instance struct {
	mu   sync.Mutex
	conn Conn            // nil before it was started
	box  sandbox.Sandbox // it runs in; nil for a server outside of it
	// starts are the last start times, at most serverStarts. has are the tools of the
	// connection, nil until they are listed. compared means that they were compared with
	// the tools that the run found.
	starts   []time.Time
	has      map[string]tool.Spec
	compared bool
}

// serverStarts bounds the starts of a server per minute and session: a server that dies
// in each call is not restarted forever.
const serverStarts = 12

// start counts a start, or rejects it. mu is held.
func (s *instance) start(name string) error {
	now := time.Now()
	if len(s.starts) == serverStarts {
		if since := now.Sub(s.starts[0]); since < time.Minute {
			return &tool.Failure{Kind: tool.Unavailable, Detail: name, Message: fmt.Sprintf(
				"MCP server %s was started %d times within a minute, and ended each time; do without it, or try again in %d seconds", name, serverStarts, int((time.Minute-since).Seconds())+1)}
		}
		s.starts = s.starts[1:]
	}
	s.starts = append(s.starts, now)
	return nil
}

// listed lists the tools of a connection, once. It returns the remarks of that one
// request.
func (s *instance) listed(ctx context.Context, conn Conn) (map[string]tool.Spec, []string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == conn && s.has != nil {
		return s.has, nil, nil
	}
	specs, remarks, err := conn.Tools(ctx)
	if err != nil {
		s.drop(conn)
		return nil, nil, err
	}
	has := map[string]tool.Spec{}
	for _, spec := range specs {
		has[spec.Name] = spec
	}
	if s.conn == conn {
		s.has, s.compared = has, false
	}
	return has, remarks, nil
}

// drop closes a connection, unless another one has replaced it. mu is held.
func (s *instance) drop(conn Conn) {
	if s.conn != nil && s.conn == conn {
		_ = s.conn.Close()
		s.conn, s.box, s.has = nil, nil, nil
	}
}

// get returns the server of a session and a name, which may not be running.
func (v *Servers) get(k session.Key, name string) *instance {
	v.mu.Lock()
	defer v.mu.Unlock()
	at := serverKey{k, name}
	if v.of == nil {
		v.of = map[serverKey]*instance{}
	}
	if v.of[at] == nil {
		v.of[at] = &instance{}
	}
	return v.of[at]
}

// Close closes all connections. No call may be in flight.
func (v *Servers) Close() {
	v.mu.Lock()
	all := v.of
	v.of = nil
	v.mu.Unlock()
	var wg sync.WaitGroup
	for _, s := range all {
		wg.Go(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.drop(s.conn)
		})
	}
	wg.Wait()
}

// connected returns the connection to a session's server, and starts the server if it
// does not run. open opens the session's sandbox.
func (v *Servers) connected(ctx context.Context, k session.Key, name string, open func(context.Context) (sandbox.Sandbox, error)) (*instance, Conn, error) {
	which, err := v.Host.ToolServer(name)
	if err != nil {
		return nil, nil, err
	}
	var box sandbox.Sandbox
	if which.Sandboxed() {
		if box, err = open(ctx); err != nil {
			return nil, nil, err
		}
	}
	s := v.get(k, name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil && s.box == box {
		return s, s.conn, nil
	}
	s.drop(s.conn) // its sandbox was closed
	if box != nil {
		v.Host.ShareSandbox(k)
	}
	if err := s.start(name); err != nil {
		return nil, nil, err
	}
	conn, err := which.Connect(ctx, box)
	if err != nil {
		return nil, nil, err
	}
	s.conn, s.box = conn, box
	return s, conn, nil
}

// differs stores the digest of a server's tools, and reports whether the run recorded
// other tools and was not warned about these.
func (v *Servers) differs(name, content string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	known := v.contents[name]
	if slices.Contains(known, content) {
		return false
	}
	if v.contents == nil {
		v.contents = map[string][]string{}
	}
	v.contents[name] = append(known, content)
	return len(known) > 0
}

// compare warns about a server whose tools differ from those that the run found, for
// example because a new version was started since.
func (v *Servers) compare(ctx context.Context, name string, s *instance, has map[string]tool.Spec) {
	s.mu.Lock()
	compared := s.compared
	s.compared = true
	s.mu.Unlock()
	if compared {
		return
	}
	now, err := found(name, slices.SortedFunc(maps.Values(has), func(a, b tool.Spec) int { return strings.Compare(a.Name, b.Name) }))
	if err == nil && v.differs(name, now.content()) {
		v.Host.Warn(ctx, fmt.Sprintf("MCP server %s has other tools or descriptions than when this run found them; the run keeps to those, and a new one finds these", name))
	}
}

// Found is the record of an agent's servers: the tools that they had, in the order in
// which the servers were named.
type Found []FoundServer

type FoundServer struct {
	Digest string      `json:"digest"` // of the tools
	Name   string      `json:"name"`
	Tools  []foundTool `json:"tools"`
}

type foundTool struct {
	Description string          `json:"description,omitempty"`
	Effect      tool.Effect     `json:"effect"`
	Name        string          `json:"name"`
	Outside     bool            `json:"outside,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
}

// content returns a digest of the tools that does not depend on the formatting of their
// schemas.
func (f FoundServer) content() string {
	tools := make([]any, 0, 2*len(f.Tools))
	for _, t := range f.Tools {
		var schema any
		_ = json.Unmarshal(t.Schema, &schema) // it was compiled
		t.Schema = nil
		tools = append(tools, t, schema)
	}
	data, err := json.Marshal(tools)
	if err != nil {
		return f.Digest
	}
	return blob.Sum(data).String()
}

func found(name string, specs []tool.Spec) (FoundServer, error) {
	f := FoundServer{Name: name, Tools: make([]foundTool, len(specs))}
	for i, s := range specs {
		f.Tools[i] = foundTool{s.Description, s.Effect, s.Name, s.Outside, s.Schema}
	}
	data, err := json.Marshal(f.Tools)
	f.Digest = blob.Sum(data).String()
	return f, err
}

// Tools returns an agent's tools as they were recorded.
func (all Found) Tools(v *Servers) (tools []tool.Tool) {
	for _, s := range all {
		v.differs(s.Name, s.content())
		for _, t := range s.Tools {
			tools = append(tools, &serverTool{v, s.Name, tool.Spec{Name: t.Name, Description: t.Description, Schema: t.Schema, Effect: t.Effect, Outside: t.Outside}})
		}
	}
	return tools
}

// Discover lists the tools of a server. open opens the sandbox of the session.
func (v *Servers) Discover(ctx context.Context, s session.Session, name string, open func(context.Context) (sandbox.Sandbox, error)) (FoundServer, error) {
	sv, conn, err := v.connected(ctx, s.Key(), name, open)
	if err != nil {
		return FoundServer{}, err
	}
	has, remarks, err := sv.listed(ctx, conn)
	if err != nil {
		return FoundServer{}, err
	}
	for _, remark := range remarks {
		v.Host.Warn(ctx, "MCP server "+name+": "+remark)
	}
	return found(name, slices.SortedFunc(maps.Values(has), func(a, b tool.Spec) int { return strings.Compare(a.Name, b.Name) }))
}

// serverTool is a tool of a server.
type serverTool struct {
	of     *Servers
	server string
	spec   tool.Spec
}

// Spec implements tool.Tool.
func (t *serverTool) Spec() tool.Spec { return t.spec }

// unchanged fails if the tool differs from the recorded one, because the server was
// restarted in a new version. It accepts a missing tool, for which Call fails.
func (t *serverTool) unchanged(ctx context.Context, s *instance, conn Conn) error {
	has, _, err := s.listed(ctx, conn)
	if err != nil {
		return err
	}
	t.of.compare(ctx, t.server, s, has)
	now, ok := has[t.spec.Name]
	what := ""
	switch {
	case !ok:
	case !sameJSON(now.Schema, t.spec.Schema):
		what = "other arguments"
	case now.Effect != t.spec.Effect || now.Outside != t.spec.Outside:
		what = "another effect"
	}
	if what == "" {
		return nil
	}
	return &tool.Failure{Kind: tool.Unavailable, Detail: t.spec.Name, Message: fmt.Sprintf(
		"tool %s of MCP server %s has %s than when this run found it, so it was not called; do without it: a new run finds it as it is", t.spec.Name, t.server, what)}
}

func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// serverTries bounds the tries of an idempotent call in one attempt, each with a fresh
// process.
const serverTries = 3

// Call implements tool.Tool.
func (t *serverTool) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	effect := lease.EffectIn(t.spec, c.Session.Placement())
	for try := 1; ; try++ {
		s, conn, err := t.of.connected(ctx, c.Session.Key(), t.server, c.Sandbox)
		if err != nil {
			return tool.Result{}, err
		}
		if err := t.unchanged(ctx, s, conn); err != nil {
			return tool.Result{}, err
		}
		res, err := conn.Call(ctx, t.spec.Name, c)
		if !errors.Is(err, session.ErrUnavailable) || ctx.Err() != nil {
			return res, err
		}
		s.mu.Lock()
		s.drop(conn)
		s.mu.Unlock()
		why := strings.TrimPrefix(err.Error(), session.ErrUnavailable.Error()+": ")
		switch {
		case errors.Is(err, tool.ErrNotMade) && try < serverTries:
			continue
		case effect == tool.Sandboxed:
			return tool.Result{}, &tool.Failure{Kind: tool.Unavailable, Detail: t.server, Err: errors.New(why), Message: why + "; the files are as it left them, and it is started again for the next call"}
		case effect == tool.NonIdempotent:
			// Its effect is unknown, so the call needs review.
			return tool.Result{}, err
		case try == serverTries:
			return tool.Result{}, &tool.Failure{Kind: tool.Unavailable, Detail: t.server, Err: errors.New(why), Message: fmt.Sprintf("%s, %d times in a row; do without it", why, try)}
		}
	}
}

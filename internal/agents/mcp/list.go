package mcp

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rathcluster/rath/internal/models/listfile"
)

// Where a server with a command runs.
const (
	InSandbox = "sandbox" // in the sandbox of the session, as its commands do
	OnHost    = "host"    // on the host, as a process of the node
)

// Limits of servers.
const (
	MaxTools    = 1024 // of one server, among those that its entry allows
	MaxTable    = 512 << 10
	MaxResult   = 4 << 20          // bytes that a call returns
	MaxParts    = 1000             // pieces of content in them
	StartTime   = 30 * time.Second // the default
	MaxStart    = 10 * time.Minute
	CallTime    = time.Minute // the default
	MaxCallTime = time.Hour
)

// Server is an entry of a list. It does not change.
type Server struct {
	Name    string
	Line    int      // in the file
	Command []string // that is started; nil is URL
	Where   string   // InSandbox or OnHost
	URL     string
	Token   string   // "env:NAME" or "file:PATH", where the bearer token for URL is
	Env     []string // names of variables of the node that the command gets
	Tools   []string // that may be used; nil are all
	// Outside reports whether calls may change state outside the workspace. It is true unless
	// the server runs in a sandbox and its entry declares otherwise.
	Outside bool
	Start   time.Duration // the maximum time to start, and again to list the tools
	Call    time.Duration // the maximum time of a call

	oauth *oauth // nil needs no sign-in

	file string
}

// List are the servers of a node. A nil List has none.
type List struct {
	File    string
	servers []*Server
}

// All returns the servers in the order of the file.
func (l *List) All() []*Server {
	if l == nil {
		return nil
	}
	return slices.Clone(l.servers)
}

// Lookup returns the server with that name, or an error that lists the names.
func (l *List) Lookup(name string) (*Server, error) {
	var names []string
	for _, s := range l.All() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("there is no MCP server %.40q: the node has no list of them (-mcp, RATH_MCP)", name)
	}
	return nil, fmt.Errorf("there is no MCP server %.40q in the list %s; name one of %s", name, filepath.Base(l.File), strings.Join(names, ", "))
}

// Read reads a list from a file. Paths of tokens are relative to its directory.
func Read(file string) (*List, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("mcp: %w", err)
	}
	return Parse(file, data)
}

// Parse reads a list. Its errors name file, line and remedy.
func Parse(file string, data []byte) (*List, error) {
	p, top, err := listfile.Parse(file, "servers", data)
	if err != nil {
		return nil, err
	}
	l := &List{File: file}
	p.Fields(top, "the list", map[string]func(*yaml.Node){
		"servers": func(n *yaml.Node) {
			p.Each(n, "servers", func(key, value *yaml.Node) { l.servers = append(l.servers, server(p, key, value)) })
		},
	})
	if len(l.servers) == 0 && p.Mistakes() == 0 {
		p.Fail(top.Line, "the list has no servers; put them below \"servers:\"")
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	return l, nil
}

// maxServerName leaves room for the name of a tool.
const maxServerName = 24

// server reads an entry.
func server(p *listfile.Parser, key, n *yaml.Node) *Server {
	s := &Server{Name: key.Value, Line: key.Line, Outside: true, Start: StartTime, Call: CallTime, file: p.File}
	if s.Name == "" || len(s.Name) > maxServerName || strings.Trim(s.Name, nameBytes) != "" || strings.Contains(s.Name, separator) || strings.HasSuffix(s.Name, "_") {
		p.Fail(key.Line, "servers: name %.80q: want 1 to %d of letters, digits, - and _, without two _ in a row and none at the end: __ separates the name of a tool", s.Name, maxServerName)
	}
	what, before := "server "+s.Name, p.Mistakes()
	state := ""
	p.Fields(n, what, map[string]func(*yaml.Node){
		"command": func(n *yaml.Node) { s.Command = command(p, n, what) },
		"where":   func(n *yaml.Node) { s.Where = p.Text(n, what+": where") },
		"url":     func(n *yaml.Node) { s.URL = address(p, n, what, "url") },
		"oauth": func(n *yaml.Node) {
			s.oauth = &oauth{}
			s.oauth.entry(p, n, what)
		},
		"token": func(n *yaml.Node) { s.Token = p.Key(n, what, "token") },
		"env":   func(n *yaml.Node) { s.Env = p.Texts(n, what+": env") },
		"tools": func(n *yaml.Node) {
			before := p.Mistakes()
			if s.Tools = p.Texts(n, what+": tools"); s.Tools == nil && p.Mistakes() == before {
				p.Fail(n.Line, "%s: tools: there are none; name the tools, or leave it out for all", what)
			}
		},
		"state":    func(n *yaml.Node) { state = p.Text(n, what+": state") },
		"start_ms": func(n *yaml.Node) { s.Start = milliseconds(p, n, what+": start_ms", MaxStart) },
		"call_ms":  func(n *yaml.Node) { s.Call = milliseconds(p, n, what+": call_ms", MaxCallTime) },
	})
	if p.Mistakes() > before {
		return s // errors about combinations of fields may follow from an earlier one
	}
	for _, name := range s.Env {
		if strings.Trim(name, envBytes) != "" {
			p.Fail(n.Line, "%s: env: %.40q is not the name of a variable; list the node's variables for the server", what, name)
		}
	}
	switch {
	case (len(s.Command) == 0) == (s.URL == ""):
		p.Fail(n.Line, "%s: want either a command or a url", what)
	case s.URL != "" && (s.Where != "" || s.Env != nil || state != ""):
		p.Fail(n.Line, "%s: where, env and state are of a command; leave them out beside url", what)
	case s.URL == "" && s.Token != "":
		p.Fail(n.Line, "%s: token is for a url; name the variable in env for a command", what)
	case s.URL == "" && s.oauth != nil:
		p.Fail(n.Line, "%s: oauth is for a url; leave it out for a command", what)
	case s.Token != "" && s.oauth != nil:
		p.Fail(n.Line, "%s: want either a token or oauth", what)
	case s.URL == "" && s.Where == "":
		s.Where = InSandbox
	case s.URL == "" && s.Where != InSandbox && s.Where != OnHost:
		p.Fail(n.Line, "%s: where: %.40q: want %s or %s", what, s.Where, InSandbox, OnHost)
	}
	switch {
	case state == "" || state == "outside":
	case state == "workspace" && s.Where == InSandbox:
		s.Outside = false
	case state == "workspace":
		p.Fail(n.Line, "%s: state: workspace is of a server in a sandbox; leave it out", what)
	default:
		p.Fail(n.Line, "%s: state: %.40q: want workspace or outside", what, state)
	}
	return s
}

func milliseconds(p *listfile.Parser, n *yaml.Node, what string, most time.Duration) time.Duration {
	ms, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 10, 64)
	if err != nil || ms < 1 || ms > most.Milliseconds() {
		p.Fail(n.Line, "%s: %.40q: want milliseconds, 1 to %d", what, n.Value, most.Milliseconds())
	}
	return time.Duration(ms) * time.Millisecond
}

const (
	envBytes  = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
	nameBytes = envBytes + "-"
)

// command reads a line for sh or a list.
func command(p *listfile.Parser, n *yaml.Node, what string) (argv []string) {
	if n.Kind == yaml.ScalarNode {
		return []string{"sh", "-c", p.Text(n, what+": command")}
	}
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		p.Fail(n.Line, "%s: command: want a line for sh, or a list of the program and its arguments", what)
		return nil
	}
	for _, one := range n.Content {
		if one.Kind != yaml.ScalarNode || strings.ContainsRune(one.Value, 0) {
			p.Fail(one.Line, "%s: command: want texts", what)
		}
		argv = append(argv, one.Value)
	}
	return argv
}

func address(p *listfile.Parser, n *yaml.Node, what, field string) string {
	text := p.Text(n, what+": "+field)
	u, err := url.Parse(text)
	switch {
	case text == "":
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		p.Fail(n.Line, "%s: %s: want a URL such as https://mcp.example.com/mcp", what, field)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		p.Fail(n.Line, "%s: %s of host %s: remove user, query and fragment; a token goes into the file or variable that token names", what, field, u.Host)
	}
	return text
}

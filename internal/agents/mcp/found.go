package mcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/tool"
)

// separator is between the name of a server and that of a tool. The name of a server
// neither contains it nor ends with _, so the first separator in a name ends the server's,
// and tools of two servers never share a name.
const separator = "__"

// maxListed is the maximum number of tools read of a server, including those that its entry
// does not allow; maxPages the maximum number of pages; maxCursor the maximum length of a
// page's name, in bytes.
const (
	maxListed = 20_000
	maxPages  = 1000
	maxCursor = 4 << 10
)

// maxName is the longest name of a tool, in bytes.
const maxName = 64

// each calls f with the server's tools until f fails. A page whose next page was seen
// before is the last one. The SDK caches pages for the lifetime that the server chooses;
// each empties the cached pages.
func (c *Conn) each(ctx context.Context, f func(*sdk.Tool) error) error {
	if r := c.cs.InitializeResult(); r != nil && r.Capabilities != nil && r.Capabilities.Tools == nil {
		return nil // it has only prompts or resources
	}
	var params sdk.ListToolsParams
	seen := map[string]bool{"": true}
	for range maxPages {
		page, err := c.cs.ListTools(ctx, &params)
		if err != nil {
			if wire, ok := errors.AsType[*jsonrpc.Error](err); ok && wire.Code == jsonrpc.CodeMethodNotFound {
				return nil
			}
			return c.s.unavailable(fmt.Errorf("list its tools: %w", c.why(ctx, err)), tryIt)
		}
		got := *page
		*page = sdk.ListToolsResult{}
		for _, t := range got.Tools {
			if err := f(t); err != nil {
				return err
			}
		}
		if seen[got.NextCursor] {
			return nil
		}
		if len(got.NextCursor) > maxCursor {
			return c.refuse(fmt.Sprintf("it names the next page of its tools by %d bytes, at most %d are taken", len(got.NextCursor), maxCursor), "ask its author for a shorter name")
		}
		params.Cursor, seen[got.NextCursor] = got.NextCursor, true
	}
	return c.refuse(fmt.Sprintf("it lists its tools on more than %d pages", maxPages), "ask its author for fewer")
}

// Tools returns the server's tools that its entry allows, sorted by name, and a remark for
// each unusable one. Their names are SERVER__TOOL, with _ for each character that model
// servers reject; a digest replaces the end of a long name.
func (c *Conn) Tools(ctx context.Context) (specs []tool.Spec, remarks []string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.s.Start, errSilent)
	defer cancel()
	offered := map[string]*sdk.Tool{}
	n := 0
	if err := c.each(ctx, func(t *sdk.Tool) error {
		if n++; n > maxListed {
			return c.refuse(fmt.Sprintf("it offers more than %d tools", maxListed), "ask its author for fewer")
		}
		if offered[t.Name] == nil {
			offered[t.Name] = t
		}
		return nil
	}); err != nil {
		return nil, nil, err
	}
	there := slices.Sorted(maps.Keys(offered))
	for _, name := range c.s.Tools {
		if offered[name] == nil {
			return nil, nil, c.refuse(fmt.Sprintf("it has no tool %q, which its entry allows", name), "name of "+clip(strings.Join(there, ", "), 400))
		}
	}
	if len(there) == 0 {
		remarks = append(remarks, "it has no tools")
	}
	names, size := map[string]string{}, 0
	more := 0 // tools beyond a bound
	leave := func(name, why string) {
		if len(remarks) < maxRemarks {
			remarks = append(remarks, c.s.redact(c.env, fmt.Sprintf("its tool %q is omitted: %s", clip(name, 80), why)))
		} else {
			more++
		}
	}
	for _, name := range there {
		if c.s.Tools != nil && !slices.Contains(c.s.Tools, name) {
			continue
		}
		spec, why := c.spec(offered[name])
		switch other, taken := names[spec.Name]; {
		case why != "":
			leave(name, why)
		case taken:
			leave(name, fmt.Sprintf("its name collides with %q; remove one of them from tools", other))
		case len(specs) == MaxTools || size+len(spec.Name)+len(spec.Description)+len(spec.Schema) > MaxTable:
			more++
		default:
			size += len(spec.Name) + len(spec.Description) + len(spec.Schema)
			names[spec.Name] = name
			specs = append(specs, spec)
		}
	}
	if more > 0 {
		remarks = append(remarks, fmt.Sprintf("%d more of its tools are omitted: the limit is %d with %d bytes of descriptions and schemas; list the needed ones in tools", more, MaxTools, MaxTable))
	}
	slices.SortFunc(specs, func(a, b tool.Spec) int { return strings.Compare(a.Name, b.Name) })
	c.mu.Lock()
	c.names = names
	c.mu.Unlock()
	return specs, remarks, nil
}

// maxRemarks bounds the omitted tools that are named.
const maxRemarks = 10

// refuse returns the error of an unusable server.
func (c *Conn) refuse(why, remedy string) error {
	return c.s.unavailable(errors.New(c.s.redact(c.env, why)), fmt.Sprintf("%s (%s:%d)", remedy, c.s.file, c.s.Line))
}

// spec returns a tool as models get it, or why it cannot be used.
func (c *Conn) spec(t *sdk.Tool) (s tool.Spec, why string) {
	s = tool.Spec{Name: nameOf(c.s.Name, t.Name), Description: clip(t.Description, 8<<10), Effect: tool.NonIdempotent}
	if s.Description == "" {
		s.Description = clip(t.Title, 200)
	}
	if lost, ok := t.Meta[lostKey].(string); ok {
		return s, "it cannot be read: " + lost
	}
	a := t.Annotations
	if a == nil {
		a = &sdk.ToolAnnotations{}
	}
	switch {
	case a.ReadOnlyHint:
		s.Effect = tool.Idempotent
	case c.s.Where == InSandbox:
		// The workspace's files are kept like those of commands. Restoring them undoes a call
		// without other effects.
		s.Effect, s.Outside = tool.Sandboxed, c.s.Outside && !a.IdempotentHint
	case a.IdempotentHint:
		s.Effect = tool.Idempotent
	}
	schema, err := usable(t.InputSchema)
	if err != nil {
		return s, err.Error()
	}
	s.Schema = schema
	if err := s.Check(); err != nil {
		return s, clip(err.Error(), 300)
	}
	return s, ""
}

// nameOf is the name of a tool of a server, of at most maxName bytes.
func nameOf(server, name string) string {
	full := server + separator + strings.Map(func(r rune) rune {
		if strings.ContainsRune(nameBytes, r) {
			return r
		}
		return '_'
	}, name)
	if len(full) <= maxName {
		return full
	}
	digest := "_" + blob.Sum([]byte(name)).String()[:8]
	return full[:maxName-len(digest)] + digest
}

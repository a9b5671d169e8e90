package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rathcluster/rath/tool"
)

// separator is between the name of a server and that of a tool. The first one in a name
// ends that of the server, which neither holds it nor ends with _, so that no two tools of
// two servers have one name.
const separator = "__"

// maxListed bounds the tools that are read of a server, also of those that its entry does
// not allow, maxPages the answers that bring them, and maxCursor what names a page, in bytes.
const (
	maxListed = 20_000
	maxPages  = 1000
	maxCursor = 4 << 10
)

// maxName is the longest name of a tool, in bytes.
const maxName = 64

// each calls f with the tools of the server, until that fails. The SDK keeps each page that
// it reads, and returns it again as long as the page says: nothing of one is left to it.
func (c *Conn) each(ctx context.Context, f func(*sdk.Tool) error) error {
	var params sdk.ListToolsParams
	for range maxPages {
		page, err := c.cs.ListTools(ctx, &params)
		if err != nil {
			return c.s.unavailable(fmt.Errorf("list its tools: %w", c.why(ctx, err)), tryIt)
		}
		got := *page
		*page = sdk.ListToolsResult{}
		for _, t := range got.Tools {
			if err := f(t); err != nil {
				return err
			}
		}
		if got.NextCursor == "" {
			return nil
		}
		if len(got.NextCursor) > maxCursor {
			return c.refuse(fmt.Sprintf("it names the next page of its tools by %d bytes, at most %d are taken", len(got.NextCursor), maxCursor), "ask its author for a shorter name")
		}
		params.Cursor = got.NextCursor
	}
	return c.refuse(fmt.Sprintf("it lists its tools on more than %d pages", maxPages), "ask its author for fewer")
}

// Tools asks the server for its tools and returns those that its entry allows, sorted by
// name. They are named SERVER__TOOL, with _ for each character that a model server does not
// take.
func (c *Conn) Tools(ctx context.Context) ([]tool.Spec, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, ConnectTime, errSilent)
	defer cancel()
	var specs []tool.Spec
	names := map[string]string{}
	offered, allowed, size := 0, 0, 0
	var there []string
	if err := c.each(ctx, func(t *sdk.Tool) error {
		if offered++; offered > maxListed {
			return c.refuse(fmt.Sprintf("it offers more than %d tools", maxListed), "ask its author for fewer")
		}
		if len(t.Name) <= maxName { // no longer one can be named
			there = append(there, t.Name)
		}
		if c.s.Tools != nil && !slices.Contains(c.s.Tools, t.Name) {
			return nil
		}
		if allowed++; allowed > MaxTools {
			return nil
		}
		spec, err := c.spec(t)
		if err != nil {
			return err
		}
		if other, taken := names[spec.Name]; taken {
			return c.refuse(fmt.Sprintf("its tools %q and %q are both %s here", other, t.Name, spec.Name), "name one of them in tools")
		}
		if size += len(spec.Name) + len(spec.Description) + len(spec.Schema); size > MaxTable {
			return c.refuse(fmt.Sprintf("descriptions and schemas of its tools have more than %d bytes", MaxTable), "name those that are needed in tools")
		}
		names[spec.Name] = t.Name
		specs = append(specs, spec)
		return nil
	}); err != nil {
		return nil, err
	}
	if allowed > MaxTools {
		return nil, c.refuse(fmt.Sprintf("it offers %d tools, at most %d are taken", allowed, MaxTools), "name those that are needed in tools")
	}
	for _, name := range c.s.Tools {
		if !slices.Contains(there, name) {
			slices.Sort(there)
			return nil, c.refuse(fmt.Sprintf("it has no tool %q, which its entry allows", name), "name of "+clip(strings.Join(there, ", "), 400))
		}
	}
	slices.SortFunc(specs, func(a, b tool.Spec) int { return strings.Compare(a.Name, b.Name) })
	c.mu.Lock()
	c.names = names
	c.mu.Unlock()
	return specs, nil
}

// refuse is the error of a server that cannot be used as it is.
func (c *Conn) refuse(why, remedy string) error {
	return c.s.unavailable(errors.New(c.s.redact(c.env, why)), fmt.Sprintf("%s (%s:%d)", remedy, c.s.file, c.s.Line))
}

// spec is what a tool says of itself.
func (c *Conn) spec(t *sdk.Tool) (tool.Spec, error) {
	s := tool.Spec{Name: nameOf(c.s.Name, t.Name), Description: clip(t.Description, 8<<10), Effect: tool.NonIdempotent}
	if s.Description == "" {
		s.Description = clip(t.Title, 200)
	}
	if len(s.Name) > maxName {
		return s, c.refuse(fmt.Sprintf("the name %s of its tool has %d characters, at most %d are taken", clip(s.Name, 120), len(s.Name), maxName), "shorten the name of the server, or leave the tool out of tools")
	}
	a := t.Annotations
	if a == nil {
		a = &sdk.ToolAnnotations{}
	}
	switch {
	case a.ReadOnlyHint:
		s.Effect = tool.Idempotent
	case c.s.Where == InSandbox:
		// Its files are kept as those of commands. Putting them back undoes a call that
		// changes nothing else.
		s.Effect, s.Outside = tool.Sandboxed, c.s.Outside && !a.IdempotentHint
	case a.IdempotentHint:
		s.Effect = tool.Idempotent
	}
	schema, err := json.Marshal(t.InputSchema)
	if err != nil {
		return s, c.refuse(fmt.Sprintf("the schema of its tool %s: %v", s.Name, err), "leave the tool out of tools")
	}
	s.Schema = schema
	if err := s.Check(); err != nil {
		return s, c.refuse("its tool cannot be used: "+clip(err.Error(), 300), "leave the tool out of tools")
	}
	return s, nil
}

// nameOf is the name of a tool of a server.
func nameOf(server, name string) string {
	return server + separator + strings.Map(func(r rune) rune {
		if strings.ContainsRune(nameBytes, r) {
			return r
		}
		return '_'
	}, name)
}

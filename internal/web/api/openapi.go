package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/rathcluster/rath/internal/web/problem"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// places are the parts of addresses. One name has one meaning in all routes.
var places = map[string]object{
	"run":      {"description": "the id of a run, or @last for the one submitted last", "schema": object{"type": "string", "pattern": "^(@last|[A-Za-z0-9_-]{1,64})$"}},
	"session":  {"description": "the id or the name of a session", "schema": object{"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}},
	"step":     {"description": "the path of the step that asks", "schema": object{"type": "string"}},
	"head":     {"description": "the head of a workspace", "schema": object{"type": "string", "pattern": "^[0-9a-f]{64}$"}},
	"workflow": {"description": "the name of a workflow", "schema": object{"type": "string"}},
	"memory":   {"description": "the name of a memory", "schema": object{"type": "string"}},
	"letter":   {"description": "the sequence of a dead letter", "schema": object{"type": "string"}},
	"node":     {"description": "the name of a node, or the beginning of its incarnation", "schema": object{"type": "string"}},
	"schema":   {"description": "the file of a schema, such as task.v1.json", "schema": object{"type": "string"}},
}

// describe makes the description of a table in OpenAPI 3.2.
func describe(table []route) ([]byte, error) {
	d := describer{schemas: object{}}
	paths := object{}
	for i := range table {
		rt := &table[i]
		item, ok := paths[rt.path].(object)
		if !ok {
			item = object{}
			paths[rt.path] = item
		}
		item[strings.ToLower(rt.method)] = d.operation(rt)
	}
	failed := d.schema(problem.Document{})
	if d.err != nil {
		return nil, d.err
	}
	return json.MarshalIndent(object{
		"openapi": "3.2.0",
		"info": object{
			"title": "Rath", "version": "1",
			"description": "Runs of agent workflows on durable sessions. A token determines the tenant. A list has its next page after the next of the page before. An error is a problem document, whose code is one of the codes of results.",
		},
		"security": []any{object{"token": []any{}}},
		"paths":    paths,
		"components": object{
			"schemas":         d.schemas,
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}},
			"responses":       object{"problem": object{"description": "An error", "content": object{problem.MediaType: object{"schema": failed}}}},
		},
	}, "", " ")
}

type describer struct {
	schemas object
	err     error
}

// schema returns the schema of a body or an answer.
func (d *describer) schema(v any) object {
	t := typeOf(v)
	if t == nil {
		return schemaRef(v.(string))
	}
	name := nameOf(t)
	if d.schemas[name] == nil {
		var s any
		var err error
		switch v.(type) {
		case submission:
			s, err = ofTask(false, object{"workflow": object{"type": "string"}})
		case rewinding:
			s, err = ofTask(true, object{"workflow": object{"type": "string"}, "version": object{"type": "integer", "minimum": 1}})
		default:
			s, err = generate(t)
		}
		if d.schemas[name] = s; err != nil {
			d.err = err
		}
	}
	return object{"$ref": "#/components/schemas/" + name}
}

func (d *describer) operation(rt *route) object {
	op := object{"summary": rt.summary, "operationId": operationID(rt), "tags": []string{strings.Split(strings.TrimPrefix(rt.path, prefix+"/"), "/")[0]}}
	var params []any
	for _, name := range placesOf(rt.path) {
		p := object{"name": name, "in": "path", "required": true}
		maps.Copy(p, places[name])
		params = append(params, p)
	}
	for _, name := range rt.params {
		params = append(params, parameters[name].describe(name))
	}
	if len(params) > 0 {
		op["parameters"] = params
	}
	if rt.verb != "" {
		op["description"] = "Roles: " + roles(rt.verb) + "."
	}
	if len(rt.commands) > 0 {
		op["x-rath-commands"] = rt.commands
	}
	if rt.body == octets {
		op["requestBody"] = object{"required": true, "content": object{octets: object{}}}
	} else if rt.body != nil {
		op["requestBody"] = object{"required": typeOf(rt.body) != nil, "content": object{"application/json": object{"schema": d.schema(rt.body)}}}
	}
	content := object{}
	for _, media := range rt.media {
		content[strings.TrimSuffix(media, "; charset=utf-8")] = object{}
	}
	if rt.answer != nil {
		content["application/json"] = object{"schema": d.schema(rt.answer)}
	}
	responses := object{"default": object{"$ref": "#/components/responses/problem"}}
	for _, status := range rt.status {
		responses[strconv.Itoa(status)] = object{"description": http.StatusText(status), "content": content}
	}
	if rt.kept {
		responses["304"] = object{"description": "The caller has the current answer"}
	}
	op["responses"] = responses
	return op
}

func (p param) describe(name string) object {
	s := object{"type": p.kind}
	if p.pattern != nil {
		s["pattern"] = p.pattern.String()
	}
	if p.values != nil {
		s["enum"] = p.values
	}
	if p.kind == "integer" {
		s["minimum"] = 0
	}
	out := object{"name": name, "in": "query", "description": p.doc, "schema": s}
	if p.many {
		out["schema"] = object{"type": "array", "items": s}
	}
	return out
}

// placesOf returns the names of the parts of an address.
func placesOf(path string) (names []string) {
	for part := range strings.SplitSeq(path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			names = append(names, strings.TrimSuffix(name, "}"))
		}
	}
	return names
}

// operationID names a row: "get_runs_run_result".
func operationID(rt *route) string {
	words := strings.NewReplacer("/", "_", "{", "", "}", "", "-", "_", ".", "_").Replace(strings.TrimPrefix(rt.path, prefix))
	return strings.ToLower(rt.method) + words
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}

// description answers with the description of the table.
func (a *API) description(_ context.Context, c *call) (any, error) {
	return immutable(c, "application/json", "openapi.json", a.openapi)
}

// schema answers with a schema of package messages.
func (a *API) schema(_ context.Context, c *call) (any, error) {
	name, ok := strings.CutSuffix(c.path("schema"), ".json")
	if !ok || !slices.Contains(messages.Schemas(), name) {
		return nil, fmt.Errorf("schema %q: %w; the description refers to all", c.path("schema"), session.ErrNotFound)
	}
	data, err := messages.SchemaOf(name)
	if err != nil {
		return nil, err
	}
	return immutable(c, "application/schema+json", name+".json", data)
}

// immutable answers with bytes that change with the release alone.
func immutable(c *call, media, name string, data []byte) (any, error) {
	sum := sha256.Sum256(data)
	if err := c.unchanged(hex.EncodeToString(sum[:16])); err != nil {
		return nil, err
	}
	c.w.Header().Set("Cache-Control", "private, no-cache") // the tag is asked about each time
	return text(media, name, data), nil
}

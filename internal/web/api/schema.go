package api

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
)

// object is an object of JSON.
type object = map[string]any

// schemaRef refers to a schema of package messages, which the routes serve unchanged.
func schemaRef(name string) object { return object{"$ref": "schema/" + name + ".json"} }

// known are the types that a schema of package messages describes.
var known = map[reflect.Type]string{
	reflect.TypeFor[messages.RunInfo]():  "run.v1",
	reflect.TypeFor[messages.Result]():   "result.v1",
	reflect.TypeFor[messages.Live]():     "live.v1",
	reflect.TypeFor[messages.Node]():     "node.v1",
	reflect.TypeFor[messages.Workflow](): "workflow.v1",
	reflect.TypeFor[wire.Answer]():       "answer.v1",
}

// generate returns the schema of a Go type, as its JSON is.
func generate(t reflect.Type) (json.RawMessage, error) {
	own := map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage](): {},
		reflect.TypeFor[blob.Digest]():     {Type: "string", Pattern: "^[0-9a-f]{64}$"},
	}
	for k, name := range known {
		own[k] = &jsonschema.Schema{Ref: "schema/" + name + ".json"}
	}
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: own})
	if err != nil {
		return nil, fmt.Errorf("api: schema of %s: %w", t, err)
	}
	return json.Marshal(s)
}

// ofTask returns the schema of an object with the fields of a task, each by reference, and
// with fields of its own, all of which are required. id is true for one that may name a run.
func ofTask(id bool, own object) (object, error) {
	text, err := messages.SchemaOf("task.v1")
	if err != nil {
		return nil, err
	}
	var task struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(text, &task); err != nil {
		return nil, fmt.Errorf("api: schema of tasks: %w", err)
	}
	properties, required := object{}, []string{}
	for name := range task.Properties {
		if name != "id" || id {
			properties[name] = object{"$ref": "schema/task.v1.json#/properties/" + name}
		}
	}
	for name, s := range own {
		properties[name] = s
		required = append(required, name)
	}
	return object{"type": "object", "properties": properties, "required": sorted(required), "additionalProperties": false}, nil
}

// nameOf is the name of a Go type among the components.
func nameOf(t reflect.Type) string {
	return strings.ToLower(t.Name()[:1]) + t.Name()[1:]
}

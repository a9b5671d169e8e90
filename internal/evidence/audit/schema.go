package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// Schemas are the JSON Schemas of stored messages. Audits may share them.
type Schemas struct {
	events  map[string]*schema // by kind
	records *schema
	result  *schema
	alias   *schema
}

// ReadSchemas reads commit.v1.json, records.v1.json, result.v1.json and
// alias.v1.json.
func ReadSchemas(files fs.FS) (*Schemas, error) {
	s := &Schemas{events: map[string]*schema{}}
	for name, into := range map[string]**schema{"records": &s.records, "result": &s.result, "alias": &s.alias} {
		root, err := readSchema(files, name+".v1.json")
		if err != nil {
			return nil, err
		}
		if *into, err = compile(root); err != nil {
			return nil, fmt.Errorf("audit: schema %s: %w", name, err)
		}
	}
	commit, err := readSchema(files, "commit.v1.json")
	if err != nil {
		return nil, err
	}
	for kind := range commit.Defs {
		if !strings.Contains(kind, ".") {
			continue
		}
		one := &jsonschema.Schema{Ref: defs + kind, Defs: map[string]*jsonschema.Schema{}}
		reach(one, commit.Defs, one.Defs)
		if s.events[kind], err = compile(one); err != nil {
			return nil, fmt.Errorf("audit: schema of %s: %w", kind, err)
		}
	}
	return s, nil
}

func readSchema(files fs.FS, name string) (*jsonschema.Schema, error) {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, fmt.Errorf("audit: schema: %w", err)
	}
	s := &jsonschema.Schema{}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("audit: schema %s: %w", name, err)
	}
	if word := unknown(s); word != "" {
		return nil, fmt.Errorf("audit: schema %s: keyword %q would not be checked", name, word)
	}
	return s, nil
}

// unknown returns a keyword of a schema or one of its parts that the library does not
// check, or "".
func unknown(s *jsonschema.Schema) string {
	for word := range s.Extra {
		return word
	}
	for _, part := range parts(s) {
		if word := unknown(part); word != "" {
			return word
		}
	}
	return ""
}

// parts returns the schemas that a schema contains.
func parts(s *jsonschema.Schema) []*jsonschema.Schema {
	all := slices.Concat(slices.Collect(maps.Values(s.Defs)), slices.Collect(maps.Values(s.Properties)), s.AnyOf)
	if s.Items != nil {
		all = append(all, s.Items)
	}
	return all
}

// reach adds to reached the definitions, out of all, that a schema refers to, directly or
// through others. The library resolves each definition of a schema, needed or not.
func reach(s *jsonschema.Schema, all, reached map[string]*jsonschema.Schema) {
	if name, ok := strings.CutPrefix(s.Ref, defs); ok && all[name] != nil && reached[name] == nil {
		reached[name] = all[name]
		reach(all[name], all, reached)
	}
	for _, part := range parts(s) {
		reach(part, all, reached)
	}
}

// defs is the prefix of references in the schemas.
const defs = "#/$defs/"

// schema is a JSON Schema ready for use.
type schema struct {
	root     *jsonschema.Schema
	resolved *jsonschema.Resolved
}

func compile(root *jsonschema.Schema) (*schema, error) {
	resolved, err := root.Resolve(nil)
	return &schema{root, resolved}, err
}

// check returns the mistake in a JSON text, or "".
func (s *schema) check(text string) string { return s.checkNewer(text, nil) }

// checkNewer is check for a text that may have fields unknown to the schema; newer, unless
// nil, is called for each of them.
func (s *schema) checkNewer(text string, newer func(field string)) string {
	var v any
	err := json.Unmarshal([]byte(text), &v)
	if err == nil {
		if newer != nil {
			s.cut(v, s.root, "", newer)
		}
		err = s.resolved.Validate(v)
	}
	if err == nil {
		return ""
	}
	for inner := errors.Unwrap(err); errors.Unwrap(inner) != nil; inner = errors.Unwrap(inner) {
		err = inner // the last two errors have the position in the schema and the mistake
	}
	return clip(strings.TrimPrefix(err.Error(), "validating "), 200)
}

// cut removes the fields of a value that are not in its schema, and reports each.
func (s *schema) cut(v any, of *jsonschema.Schema, at string, newer func(field string)) {
	if name, ok := strings.CutPrefix(of.Ref, defs); ok {
		of = s.root.Defs[name]
	}
	switch v := v.(type) {
	case map[string]any:
		for name, field := range v {
			switch p := of.Properties[name]; {
			case p != nil:
				s.cut(field, p, at+name+".", newer)
			case of.AdditionalProperties != nil && of.AdditionalProperties.Not != nil:
				delete(v, name)
				newer(at + name)
			}
		}
	case []any:
		for _, one := range v {
			if of.Items != nil {
				s.cut(one, of.Items, strings.TrimSuffix(at, ".")+"[].", newer)
			}
		}
	}
}

// clip returns at most n bytes of s, cut between characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

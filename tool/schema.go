package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// MaxArguments is the longest text of arguments, in bytes.
const MaxArguments = 1 << 20

// checker checks arguments against one schema.
type checker struct {
	whole *jsonschema.Resolved
	// For saying what is wrong, in one order whatever the library's is: the
	// library stops at the first property that is wrong in map order.
	parts map[string]*jsonschema.Resolved
}

// compile reads a schema. References must stay inside it: nothing is fetched.
func compile(raw json.RawMessage) (*checker, error) {
	if len(raw) == 0 {
		raw = json.RawMessage(`{"type":"object"}`)
	}
	read := func() (*jsonschema.Schema, error) {
		s := new(jsonschema.Schema)
		err := json.Unmarshal(raw, s)
		return s, err
	}
	s, err := read()
	if err != nil {
		return nil, err
	}
	if s.Type != "object" && (s.Type != "" || s.Types != nil) {
		return nil, errors.New(`the type is not "object", but arguments always are one`)
	}
	whole, err := s.Resolve(nil)
	if err != nil {
		return nil, err
	}
	c := &checker{whole: whole, parts: make(map[string]*jsonschema.Resolved)}
	for name := range s.Properties {
		part, err := read()
		if err != nil {
			return nil, err
		}
		// Without properties and requirements but this one's; definitions stay.
		part.Properties = map[string]*jsonschema.Schema{name: part.Properties[name]}
		part.PropertyOrder, part.Required = nil, nil
		part.AdditionalProperties, part.UnevaluatedProperties, part.PropertyNames = nil, nil, nil
		if resolved, err := part.Resolve(nil); err == nil { // fails if it refers to another property
			c.parts[name] = resolved
		}
	}
	return c, nil
}

// check decodes the text of a call's arguments. The empty text, which models
// send for a tool without arguments, is the empty object. An optional argument
// that is null although the schema wants another type counts as absent.
func (c *checker) check(text string) (json.RawMessage, error) {
	if len(text) > MaxArguments {
		return nil, &Failure{
			Kind: InvalidArguments, Detail: clip(text, maxMessage),
			Message: fmt.Sprintf("the arguments have %d bytes, at most %d are taken: pass large data through a file", len(text), MaxArguments),
		}
	}
	text = strings.TrimSpace(strings.ToValidUTF8(text, "\ufffd"))
	if text == "" {
		text = "{}"
	}
	refuse := func(why string) error {
		return &Failure{Kind: InvalidArguments, Message: why, Detail: clip(text, maxMessage)}
	}
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return nil, refuse("the arguments are not JSON: " + err.Error())
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, refuse("the arguments are not a JSON object")
	}
	err := c.whole.Validate(object)
	if err == nil {
		var b bytes.Buffer
		if err := json.Compact(&b, []byte(text)); err != nil {
			return nil, refuse("the arguments are not JSON: " + err.Error())
		}
		return b.Bytes(), nil
	}
	if args, ok := c.withoutNulls(text, object); ok {
		return args, nil
	}
	return nil, refuse("the arguments do not match the schema: " + c.explain(object, err))
}

// withoutNulls returns the arguments without optional ones that are null, if
// they then match.
func (c *checker) withoutNulls(text string, object map[string]any) (json.RawMessage, bool) {
	var raw map[string]json.RawMessage // keeps numbers as they were written
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return nil, false
	}
	lean := maps.Clone(object)
	for name, value := range object {
		if value == nil && !slices.Contains(c.whole.Schema().Required, name) {
			delete(lean, name)
			delete(raw, name)
		}
	}
	if len(lean) == len(object) || c.whole.Validate(lean) != nil {
		return nil, false
	}
	args, err := canonical(raw)
	return args, err == nil
}

// explain names everything that is wrong at the top, or what err says if that
// is nothing.
func (c *checker) explain(object map[string]any, err error) string {
	s := c.whole.Schema()
	var wrong []string
	for _, name := range slices.Sorted(slices.Values(s.Required)) {
		if _, ok := object[name]; !ok {
			wrong = append(wrong, fmt.Sprintf("%q is missing", name))
		}
	}
	closed := s.AdditionalProperties != nil && s.AdditionalProperties.Not != nil
	for _, name := range slices.Sorted(maps.Keys(object)) {
		part, ok := c.parts[name]
		switch {
		case ok:
			if err := part.Validate(object); err != nil {
				wrong = append(wrong, fmt.Sprintf("%q: %s", name, reason(err)))
			}
		case closed && s.Properties[name] == nil:
			wrong = append(wrong, fmt.Sprintf("%q is not an argument (there are: %s)",
				clip(name, 64), strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", ")))
		}
	}
	if len(wrong) == 0 {
		return reason(err)
	}
	if n := len(wrong); n > 8 {
		wrong = append(wrong[:8], fmt.Sprintf("and %d more", n-8))
	}
	return strings.Join(wrong, "; ")
}

// reason is the text of a validation error from its cause on, without the path
// of schemas before it.
func reason(err error) string {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return clip(err.Error(), 400)
}

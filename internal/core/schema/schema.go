package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/rathcluster/rath/internal/core/excerpt"
)

// Checker checks the arguments of a tool, or another value, against one schema. It is safe for
// concurrent use.
type Checker struct {
	name  string // of the tool
	whole *jsonschema.Resolved
	shape *shape
	raw   json.RawMessage
	noun  string // for a property
}

// Compile reads the schema of a tool's arguments; an empty one accepts any object.
// References must stay inside the schema: Compile fetches no documents.
func Compile(name string, raw json.RawMessage) (*Checker, error) {
	if len(raw) == 0 {
		raw = json.RawMessage(`{"type":"object"}`)
	}
	whole, h, err := resolve(raw)
	if err != nil {
		return nil, err
	}
	if s := whole.Schema(); s.Type != "object" && (s.Type != "" || s.Types != nil) {
		return nil, errors.New(`the type is not "object", but arguments always are one`)
	}
	return &Checker{name, whole, h, raw, "an argument"}, nil
}

// Refuses returns the reason why a value, as encoding/json decodes it, does not match a
// JSON Schema that another process announced, or "" if it does. It changes the objects
// and lists in the value. References must stay inside the schema: Refuses fetches no
// documents. It returns an error if the schema is wrong, or if the check would not end
// or would take too long.
func Refuses(schema json.RawMessage, value any) (why string, err error) {
	whole, h, err := resolve(schema)
	if err != nil {
		return "", err
	}
	takes, err := h.effortOf(whole.Schema(), value)
	if err != nil {
		return "", err
	}
	if err = whole.Validate(brief(value)); err == nil {
		return "", nil
	}
	if object, ok := value.(map[string]any); ok {
		c := &Checker{whole: whole, raw: schema, noun: "a field"}
		return c.explain(object, err, min(maxExplained, maxSteps/takes.steps)), nil
	}
	return reason(err), nil
}

func resolve(raw json.RawMessage) (*jsonschema.Resolved, *shape, error) {
	if nesting(string(raw)) > maxNesting {
		return nil, nil, fmt.Errorf("it is nested more than %d levels deep", maxNesting)
	}
	s := new(jsonschema.Schema)
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, nil, err
	}
	h, err := shapeOf(s)
	if err != nil {
		return nil, nil, err
	}
	whole, err := s.Resolve(nil)
	if err != nil {
		return nil, nil, err
	}
	return whole, h, h.bounded()
}

// maxExplained bounds the arguments that are checked one by one for an error message.
const maxExplained = 64

// part is the schema with the properties and requirements of a single property. Error
// messages use it to report mistakes in a fixed order: the library stops at the first
// wrong property in map order.
func (c *Checker) part(name string) (*jsonschema.Resolved, bool) {
	part := new(jsonschema.Schema)
	if json.Unmarshal(c.raw, part) != nil || part.Properties[name] == nil {
		return nil, false
	}
	part.Properties = map[string]*jsonschema.Schema{name: part.Properties[name]}
	part.PropertyOrder, part.Required = nil, nil
	part.AdditionalProperties, part.UnevaluatedProperties, part.PropertyNames = nil, nil, nil
	resolved, err := part.Resolve(nil)
	return resolved, err == nil // it fails for a reference to another property
}

// Check returns the arguments of a call in the form in which the tool gets them, from
// their text, which must be valid UTF-8. The error is for the model. An optional
// argument that is null although the schema requires another type counts as absent.
func (c *Checker) Check(text string) (json.RawMessage, error) {
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return nil, fmt.Errorf("the arguments are not JSON: %w", err)
	}
	if nesting(text) > maxNesting {
		return nil, fmt.Errorf("the arguments are nested more than %d levels deep: pass them flatter, or as text", maxNesting)
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("the arguments are not a JSON object")
	}
	takes, err := c.shape.effortOf(c.whole.Schema(), object)
	if err != nil {
		return nil, fmt.Errorf("checking the arguments would take too long: the alternatives in the schema of %q need more than %d steps. "+
			"Pass fewer or flatter arguments. The author of the tool should let each value be described once, not by several references or alternatives", c.name, maxSteps)
	}
	brief(object)
	err = c.whole.Validate(object)
	if err == nil {
		var b bytes.Buffer
		if err := json.Compact(&b, []byte(text)); err != nil {
			return nil, fmt.Errorf("the arguments are not JSON: %w", err)
		}
		return b.Bytes(), nil
	}
	if args, ok := c.withoutNulls(text, object); ok {
		return args, nil
	}
	if args, ok := c.unquoted(text); ok {
		return args, nil
	}
	return nil, errors.New("the arguments do not match the schema: " + c.explain(object, err, min(maxExplained, maxSteps/takes.steps)))
}

// withoutNulls returns the arguments without the optional ones that are null, if the
// rest matches.
func (c *Checker) withoutNulls(text string, object map[string]any) (json.RawMessage, bool) {
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
	args, err := Marshal(raw)
	return args, err == nil
}

// explain names the mistakes at the top, or the text of err if there are none. It
// checks at most looks arguments one by one.
func (c *Checker) explain(object map[string]any, err error, looks int) string {
	s := c.whole.Schema()
	var wrong []string
	for _, name := range slices.Sorted(slices.Values(s.Required)) {
		if _, ok := object[name]; !ok {
			wrong = append(wrong, fmt.Sprintf("%q is missing", name))
		}
	}
	closed := s.AdditionalProperties != nil && s.AdditionalProperties.Not != nil
	for _, name := range slices.Sorted(maps.Keys(object)) {
		switch {
		case s.Properties[name] != nil && looks > 0:
			looks--
			if part, ok := c.part(name); !ok {
				continue
			} else if err := part.Validate(object); err != nil {
				wrong = append(wrong, fmt.Sprintf("%q: %s", name, reason(err)))
			}
		case closed && s.Properties[name] == nil:
			wrong = append(wrong, fmt.Sprintf("%q is not %s (there are: %s)",
				clip(name, 64), c.noun, strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", ")))
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

// reason is the text of a validation error from its cause on, without the leading path
// of schemas.
func reason(err error) string {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return clip(err.Error(), 400)
}

// fields and items are objects and lists with a short text form. The library would
// otherwise write them out in each of its complaints.
type (
	fields map[string]any
	items  []any
)

// Format implements fmt.Formatter.
func (o fields) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "an object of %d fields", len(o)) }

// Format implements fmt.Formatter.
func (l items) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "a list of %d items", len(l)) }

// brief converts the objects and lists within a decoded value to fields and items.
func brief(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			v[name] = brief(v[name])
		}
		return fields(v)
	case []any:
		for i := range v {
			v[i] = brief(v[i])
		}
		return items(v)
	}
	return v
}

// clip cuts a text to about n bytes, and marks the cut.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return excerpt.Clip(text, n) + "..."
}

// Marshal encodes v as compact JSON in valid UTF-8, without the escapes that only HTML
// needs. Equal values have equal encodings.
func Marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	// The encoder copies raw messages verbatim, including invalid bytes.
	return bytes.ToValidUTF8(bytes.TrimSuffix(b.Bytes(), []byte("\n")), []byte("\ufffd")), nil
}

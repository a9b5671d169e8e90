package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp/syntax"

	"github.com/google/jsonschema-go/jsonschema"
)

const (
	// maxSteps bounds the cost of checking one call's arguments. A step is about the
	// cost of one small value, a microsecond.
	maxSteps = 1 << 21
	// maxComplaint bounds the error text that the library may build, in bytes.
	maxComplaint = 16 << 20
	// maxStates bounds the automata of the patterns of a schema.
	maxStates = 1 << 15
)

// errEffort is returned for arguments whose check would take too long.
var errEffort = errors.New("schema: the check takes too long")

// keywords is the cost of one schema's own keywords, without its subschemas.
type keywords struct {
	steps    int // for any value
	text     int // bytes of the error for a value that does not match
	pattern  int // states of pattern
	patterns int // states of all patternProperties
}

// keywordsOf weighs the keywords of the schema at a JSON pointer.
func keywordsOf(at string, s *jsonschema.Schema) (keywords, error) {
	k := keywords{text: len(at) + len(s.ID) + 128}
	lists := len(s.Properties)/4 + len(s.Required)/16 + len(s.PatternProperties)/4
	for _, names := range []map[string][]string{s.DependentRequired, s.DependencyStrings} {
		lists += len(names) / 16
		for _, needed := range names {
			lists += len(needed) / 16
			k.text += textOf(needed)
		}
	}
	k.text += textOf(s.Required) + textOf(s.Types) + len(s.Pattern)
	for _, some := range [][]*jsonschema.Schema{s.AnyOf, s.OneOf} {
		for _, part := range some {
			if part == nil {
				continue // null, which the library rejects on resolving
			}
			k.text += len(part.String()) + 32
		}
	}
	allowed, err := json.Marshal(s.Enum)
	if err != nil {
		return keywords{}, err
	}
	only, err := json.Marshal(s.Const)
	if err != nil {
		return keywords{}, err
	}
	k.text += 2 * (len(allowed) + len(only))
	k.steps = 1 + lists + len(s.Enum)/4 + (len(allowed)+len(only))/64
	if s.DynamicRef != "" {
		k.steps += maxNesting // the search goes from the outside in
	}
	if s.Pattern != "" {
		if k.pattern, err = States(s.Pattern); err != nil {
			return keywords{}, err
		}
	}
	for pattern := range s.PatternProperties {
		n, err := States(pattern)
		if err != nil {
			return keywords{}, err
		}
		k.patterns += n
	}
	return k, nil
}

func textOf(names []string) int {
	n := 0
	for _, name := range names {
		n += len(name) + 8
	}
	return n
}

// States is the approximate number of states of a pattern's automaton.
func States(pattern string) (int, error) {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, fmt.Errorf("pattern %q: %w", clip(pattern, 100), err)
	}
	var count func(*syntax.Regexp) int
	count = func(re *syntax.Regexp) int {
		n := 1 + len(re.Rune)/2
		for _, sub := range re.Sub {
			n += count(sub)
		}
		if re.Op == syntax.OpRepeat {
			n *= max(re.Min, re.Max, 1) + 1
		}
		return min(n, maxStates+1)
	}
	return count(re), nil
}

// effort is an upper bound of the cost of checking a value against a schema. The
// library has no such bound. It follows every reference for every nested value, so a
// schema with several ways to the same value may take time exponential in the nesting
// of the value.
type effort struct {
	steps int
	text  int // bytes of the error, if there is one
}

// estimate computes efforts. It visits each schema once for each value.
type estimate struct {
	shape  *shape
	known  map[application]effort
	sizes  map[any]int
	looked int
}

// application is a schema that applies to an object or a list.
type application struct {
	schema *jsonschema.Schema
	value  any
}

// effortOf bounds the cost of checking a decoded value against a schema. The error is
// errEffort if the cost is too high.
func (h *shape) effortOf(s *jsonschema.Schema, v any) (effort, error) {
	e := &estimate{shape: h, known: map[application]effort{}, sizes: map[any]int{}}
	return e.of(s, v)
}

// place identifies an object or a list among the values of one decoded text; it is nil
// for other values. Empty values have no place and need none.
func place(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return reflect.ValueOf(v).Pointer()
	case []any:
		if len(v) > 0 {
			return &v[0]
		}
	}
	return nil
}

// size is the approximate number of word-sized values within a value.
func (e *estimate) size(v any) int {
	at := place(v)
	if n, ok := e.sizes[at]; ok && at != nil {
		return n
	}
	n := 1
	switch v := v.(type) {
	case string:
		return n + len(v)/16
	case []any:
		for _, item := range v {
			n += e.size(item)
		}
	case map[string]any:
		for name, item := range v {
			n += 1 + len(name)/16 + e.size(item)
		}
	}
	if at != nil {
		e.sizes[at] = n
	}
	return n
}

func (e *estimate) of(s *jsonschema.Schema, v any) (effort, error) {
	key := application{s, place(v)}
	if t, ok := e.known[key]; ok && key.value != nil {
		return t, nil
	}
	if e.looked++; e.looked > maxSteps {
		return effort{}, errEffort
	}
	k := e.shape.known[s].cost
	t, own := effort{steps: k.steps}, k.text
	switch v := v.(type) {
	case string:
		t.steps += len(v)/64 + matching(k.pattern, v)
		own += 4 * len(v)
	case []any:
		t.steps += len(v) / 8
		if s.UniqueItems {
			t.steps += e.comparing(v)
		}
	case map[string]any:
		t.steps += len(v) / 8
		for name := range v {
			t.steps += matching(k.patterns, name)
			if s.AdditionalProperties != nil || s.PropertyNames != nil {
				own += 4 * len(name)
			}
		}
	}
	t.steps += own / 64
	if err := e.applied(&t, s, v); err != nil {
		return effort{}, err
	}
	t.text += own
	t.steps += t.text / 1024 // it is copied on return
	if t.steps > maxSteps || t.text > maxComplaint {
		return effort{}, errEffort
	}
	if key.value != nil {
		e.known[key] = t
	}
	return t, nil
}

// applied adds the cost of the subschemas of s.
func (e *estimate) applied(t *effort, s *jsonschema.Schema, v any) error {
	one := func(part *jsonschema.Schema, v any) (int, error) {
		if part == nil {
			return 0, nil
		}
		u, err := e.of(part, v)
		if err != nil {
			return 0, err
		}
		if t.steps += u.steps; t.steps > maxSteps {
			return 0, errEffort
		}
		t.text = max(t.text, u.text)
		return u.text, nil
	}
	var err error
	add := func(part *jsonschema.Schema, v any) {
		if err == nil {
			_, err = one(part, v)
		}
	}
	w := e.shape.known[s]
	for _, ref := range w.refs {
		var most effort // of those it may lead to, it leads to one
		for _, part := range ref {
			u, err := e.of(part, v)
			if err != nil {
				return err
			}
			most.steps, most.text = max(most.steps, u.steps), max(most.text, u.text)
		}
		t.steps, t.text = t.steps+most.steps, max(t.text, most.text)
	}
	all := 0 // the error of anyOf includes those of all
	for _, part := range s.AnyOf {
		text, err := one(part, v)
		if err != nil {
			return err
		}
		all += text
	}
	t.text = max(t.text, all)
	for _, part := range w.others {
		add(part, v)
	}
	switch v := v.(type) {
	case []any:
		for i, item := range v {
			for _, some := range [][]*jsonschema.Schema{s.PrefixItems, s.ItemsArray} {
				if i < len(some) {
					add(some[i], item)
				}
			}
			for _, part := range []*jsonschema.Schema{s.Items, s.AdditionalItems, s.Contains, s.UnevaluatedItems} {
				add(part, item)
			}
		}
	case map[string]any:
		for name, item := range v {
			part, known := s.Properties[name]
			add(part, item)
			for _, part := range s.PatternProperties {
				add(part, item)
			}
			if !known {
				add(s.AdditionalProperties, item)
			}
			add(s.UnevaluatedProperties, item)
			add(s.PropertyNames, name)
		}
	}
	return err
}

// matching is the cost of finding a pattern of some states in a text.
func matching(states int, text string) int {
	if states == 0 {
		return 0
	}
	return 1 + states*len(text)/16
}

// comparing is the cost of finding equal items. The library compares items with equal
// hashes in pairs, and different lists and objects can have equal hashes.
func (e *estimate) comparing(items []any) int {
	n, nested := 0, 0
	for _, item := range items {
		n += e.size(item)
		if place(item) != nil {
			nested++
		}
	}
	return n + nested*(n/16+1)
}

package schema

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// A schema may come from another program, and arguments from a model with untrusted
// input. The library follows both to any depth, without a bound on its time or its
// stack. The bounds here limit both.
const (
	// maxNesting bounds the nesting of objects and lists, in a schema and in arguments.
	maxNesting = 128
	// maxApplied bounds the schemas that apply to one value, and maxChain those that
	// apply through each other, for example by references.
	maxApplied = 4096
	maxChain   = 32
	// maxNamed bounds the parts of a schema with an $id, and maxPaths the total length
	// of the JSON pointers to all parts, in bytes.
	maxNamed = 64
	maxPaths = 4 << 20
)

// nesting is the nesting depth of objects and lists in a JSON text.
func nesting(text string) int {
	deepest, depth, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// shape is a schema with its parts by the JSON pointers to them.
type shape struct {
	at     map[string]*jsonschema.Schema
	bases  []string                        // pointers at which references may begin
	named  map[string][]*jsonschema.Schema // parts by their anchors
	known  map[*jsonschema.Schema]*weight
	paths  int // bytes of the pointers
	states int // of the automata of all patterns
}

// weight is the cost of checking one value against a schema, without its nested values.
type weight struct {
	applied, chain int
	open           bool // its weight is being computed

	cost   keywords
	refs   [][]*jsonschema.Schema // possible targets of each reference
	others []*jsonschema.Schema   // that apply to the same value, without those of anyOf
}

// shapeOf analyses a schema. It rejects a schema that cannot be resolved at a bounded
// cost.
func shapeOf(s *jsonschema.Schema) (*shape, error) {
	h := &shape{
		at: map[string]*jsonschema.Schema{}, named: map[string][]*jsonschema.Schema{},
		known: map[*jsonschema.Schema]*weight{},
	}
	return h, h.enter("", s)
}

// bounded rejects a schema whose check of a value does not end, or exceeds the limits
// above. Nested values are counted separately: see effort.
func (h *shape) bounded() error {
	for _, part := range h.at {
		if _, err := h.weigh(part); err != nil {
			return err
		}
	}
	return nil
}

func (h *shape) enter(at string, s *jsonschema.Schema) error {
	h.at[at] = s
	if h.paths += len(at); h.paths > maxPaths {
		return fmt.Errorf("the pointers to its parts have more than %d bytes together: choose shorter names", maxPaths)
	}
	if at == "" || s.ID != "" {
		if h.bases = append(h.bases, at); len(h.bases) > maxNamed {
			return fmt.Errorf("more than %d of its parts have an $id: use $defs", maxNamed)
		}
	}
	names := []string{s.Anchor}
	if s.DynamicAnchor != s.Anchor {
		names = append(names, s.DynamicAnchor)
	}
	if name, ok := strings.CutPrefix(s.ID, "#"); ok && !slices.Contains(names, name) {
		names = append(names, name) // as of draft 7
	}
	for _, name := range names {
		if name != "" {
			h.named[name] = append(h.named[name], s)
		}
	}
	cost, err := keywordsOf(at, s)
	if err != nil {
		return err
	}
	if h.states += cost.pattern + cost.patterns; h.states > maxStates {
		return fmt.Errorf("its patterns need more than %d states together: repeat less in them", maxStates)
	}
	h.known[s] = &weight{cost: cost}
	parts(s, func(name string, part *jsonschema.Schema, _ bool) {
		if err == nil {
			err = h.enter(at+name, part)
		}
	})
	return err
}

func (h *shape) weigh(s *jsonschema.Schema) (*weight, error) {
	w := h.known[s]
	switch {
	case w.open:
		return nil, fmt.Errorf("it refers to itself for one and the same value, so checking one would not end")
	case w.applied > 0:
		return w, nil
	}
	w.applied, w.open = 1, true
	var err error
	if w.refs, err = h.referred(s); err != nil {
		return nil, err
	}
	parts(s, func(at string, part *jsonschema.Schema, same bool) {
		if same && !strings.HasPrefix(at, "/anyOf/") {
			w.others = append(w.others, part)
		}
	})
	next := slices.Concat(slices.Concat(w.refs...), s.AnyOf, w.others)
	for _, part := range next {
		v, err := h.weigh(part)
		if err != nil {
			return nil, err
		}
		w.applied, w.chain = w.applied+v.applied, max(w.chain, v.chain+1)
		if w.applied > maxApplied || w.chain > maxChain {
			return nil, fmt.Errorf("more than %d schemas apply to one value, or more than %d by way of each other: make it simpler", maxApplied, maxChain)
		}
	}
	w.open = false
	return w, nil
}

// referred returns the possible targets of each reference of a schema. If several
// schemas have names of their own, that is a superset of the real targets.
func (h *shape) referred(s *jsonschema.Schema) ([][]*jsonschema.Schema, error) {
	var all [][]*jsonschema.Schema
	for _, ref := range []string{s.Ref, s.DynamicRef} {
		if ref == "" {
			continue
		}
		u, err := url.Parse(ref)
		if err != nil {
			return nil, err
		}
		var found []*jsonschema.Schema
		if name := u.Fragment; name != "" && name[0] != '/' {
			found = h.named[name]
		} else {
			for _, base := range h.bases {
				if part := h.at[base+name]; part != nil {
					found = append(found, part)
				}
			}
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("its reference %q cannot be followed", clip(ref, 100))
		}
		all = append(all, found)
	}
	return all, nil
}

// parts calls visit with each schema within s, the JSON pointer to it from s, and
// whether it applies to the same value as s.
func parts(s *jsonschema.Schema, visit func(name string, part *jsonschema.Schema, same bool)) {
	one := func(name string, part *jsonschema.Schema, same bool) {
		if part != nil {
			visit("/"+name, part, same)
		}
	}
	list := func(name string, all []*jsonschema.Schema, same bool) {
		for i, part := range all {
			one(name+"/"+strconv.Itoa(i), part, same)
		}
	}
	named := func(name string, all map[string]*jsonschema.Schema, same bool) {
		for key, part := range all {
			one(name+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(key), part, same)
		}
	}
	list("allOf", s.AllOf, true)
	list("anyOf", s.AnyOf, true)
	list("oneOf", s.OneOf, true)
	one("not", s.Not, true)
	one("if", s.If, true)
	one("then", s.Then, true)
	one("else", s.Else, true)
	named("dependentSchemas", s.DependentSchemas, true)
	named("dependencies", s.DependencySchemas, true)

	named("$defs", s.Defs, false)
	named("definitions", s.Definitions, false)
	list("prefixItems", s.PrefixItems, false)
	one("items", s.Items, false)
	list("items", s.ItemsArray, false)
	one("additionalItems", s.AdditionalItems, false)
	one("contains", s.Contains, false)
	one("unevaluatedItems", s.UnevaluatedItems, false)
	named("properties", s.Properties, false)
	named("patternProperties", s.PatternProperties, false)
	one("additionalProperties", s.AdditionalProperties, false)
	one("propertyNames", s.PropertyNames, false)
	one("unevaluatedProperties", s.UnevaluatedProperties, false)
	one("contentSchema", s.ContentSchema, false)
}

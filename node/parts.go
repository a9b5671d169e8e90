package node

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// Limits of the description of a workflow: it is part of each answer about the offer.
const (
	maxParts     = 100
	maxPartBytes = 8 << 10 // of all parts as JSON
	maxPartDepth = 16
	maxPartText  = 120
)

var (
	workflowType     = reflect.TypeFor[flow.Workflow]()
	describedType    = reflect.TypeOf(flow.Described("", "", nil))
	workflowToolType = reflect.TypeOf(flow.WorkflowTool("tool", "", flow.EmptyWorkflow{}))
)

// parts lists the parts of a workflow, the contents of its fields in order.
type parts struct {
	all   []messages.WorkflowPart
	bytes int
	left  int
	depth int
	above []any // the pointers that led here
}

// inputs are tried in turn on a constructor that reads a task's input: no input, a text
// and an object.
var inputs = []json.RawMessage{nil, json.RawMessage(`"-"`), json.RawMessage(`{}`)}

// describe sets the type and the parts of a workflow, as it is built without a task.
// Both are empty if the constructor fails on all inputs or panics.
func describe(w *messages.Workflow, g flow.Registration) {
	defer func() {
		if recover() != nil { // of the author's constructor
			w.Type, w.Parts, w.Left = "", nil, 0
		}
	}()
	var v flow.Workflow
	if g.NewFor == nil {
		v = g.New()
	}
	for i := 0; g.NewFor != nil && i < len(inputs); i++ {
		made, err := g.NewFor(flow.Info{Input: inputs[i]})
		if err == nil {
			v = made
			break
		}
	}
	if v == nil {
		return
	}
	var m parts
	m.workflow("", reflect.ValueOf(v), messages.WorkflowPart{})
	w.Type, w.Parts, w.Left = clipped(reflect.TypeOf(v).String()), m.all, m.left
}

// add adds a part, if there is room. The workflow itself is no part, unless it is an
// agent.
func (m *parts) add(p messages.WorkflowPart) {
	if p.Path == "" {
		if p.Kind == "workflow" {
			return
		}
		p.Path = "."
	}
	p.Path, p.Name, p.Description = clipped(p.Path), clipped(p.Name), clipped(p.Description)
	p.Model, p.Memory, p.Revision = clipped(p.Model), clipped(p.Memory), clipped(p.Revision)
	data, err := json.Marshal(p)
	if err != nil || len(m.all) == maxParts || m.bytes+len(data) > maxPartBytes {
		m.left++
		return
	}
	m.all, m.bytes = append(m.all, p), m.bytes+len(data)
}

// workflow adds v and its parts. of holds the facts about v that the caller has found.
func (m *parts) workflow(path string, v reflect.Value, of messages.WorkflowPart) {
	if m.depth == maxPartDepth {
		return
	}
	m.depth++
	defer func() { m.depth-- }()
	v = readable(v)
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		if v.Kind() == reflect.Pointer {
			p := v.Interface()
			if slices.Contains(m.above, p) {
				return
			}
			m.above = append(m.above, p)
			defer func() { m.above = m.above[:len(m.above)-1] }()
		}
		v = v.Elem()
	}
	v = addressable(v)
	of.Path, of.Kind = path, "workflow"
	switch w := v.Addr().Interface().(type) {
	case *flow.Agent:
		m.agent(of, w)
	case *flow.Selector:
		m.asks(of, "selector", w.Name, w.Prompt, w.Provider)
	case *flow.Compressor:
		m.asks(of, "compressor", w.Name, w.Prompt, w.Provider)
	case *flow.Remote:
		of.Kind, of.Name, of.Revision, of.Model, of.Tools, of.MCP = "remote", w.Workflow, w.Revision, w.Model, namesOf(w.Tools), namesOf(w.MCP)
		of.Description = cmp.Or(of.Description, w.Description)
		m.add(of)
	case *flow.Branch:
		m.workflow(below(path, w.Name), reflect.ValueOf(w).Elem().FieldByName("Workflow"), messages.WorkflowPart{Branch: true})
	default:
		switch t := v.Type(); {
		case t == describedType:
			of.Description = cmp.Or(of.Description, v.FieldByName("description").String())
			m.workflow(path, v.FieldByName("Workflow"), of)
		case t.Implements(workflowType) || reflect.PointerTo(t).Implements(workflowType):
			of.Name = t.String()
			m.add(of)
			m.held(path, v, true)
		default:
			m.held(path, v, false)
		}
	}
}

// held adds the contents of the fields or elements of v. It reads all fields of a
// workflow. Of another struct it reads the exported fields and does not follow pointers
// from there.
func (m *parts) held(path string, v reflect.Value, all bool) {
	switch t := v.Type(); t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if !f.IsExported() && !all || !mayHold(f.Type) {
				continue
			}
			at := path
			if !f.Anonymous {
				at = below(path, f.Name)
			}
			m.workflow(at, v.Field(i), messages.WorkflowPart{})
		}
	case reflect.Slice, reflect.Array:
		if !mayHold(t.Elem()) {
			return
		}
		for i := range v.Len() {
			at := below(path, strconv.Itoa(i))
			if t.Elem() == reflect.TypeFor[flow.Branch]() {
				at = path // branches have names
			}
			if len(m.all) == maxParts {
				m.left += v.Len() - i
				return
			}
			m.workflow(at, v.Index(i), messages.WorkflowPart{})
		}
	case reflect.Map:
		if t.Key().Kind() != reflect.String || !mayHold(t.Elem()) {
			return
		}
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) })
		for _, k := range keys {
			m.workflow(below(path, k.String()), v.MapIndex(k), messages.WorkflowPart{})
		}
	}
}

// mayHold reports whether a value of the type can be a workflow or hold one by value.
func mayHold(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct, reflect.Slice, reflect.Array, reflect.Map:
		return true
	case reflect.Pointer:
		return t.Implements(workflowType) || t == reflect.TypeFor[*flow.Selector]()
	}
	return t.Implements(workflowType)
}

func (m *parts) agent(of messages.WorkflowPart, a *flow.Agent) {
	of.Kind, of.Name, of.Model, of.Memory, of.MCP = "agent", a.Name, a.Provider.Model, a.Memory, namesOf(a.MCP)
	of.Description = cmp.Or(of.Description, excerpt.FirstLine(a.Prompt))
	of.MaxRounds, of.MaxContext, of.Budget = cmp.Or(a.MaxRounds, engine.DefaultMaxRounds), a.MaxContext, budgetOf(a.Budget)
	var names []string
	for _, t := range a.Tools {
		names = append(names, t.Spec().Name)
	}
	of.Tools = namesOf(names)
	m.add(of)
	for i, t := range a.Tools {
		if v := reflect.ValueOf(t); v.Type() == workflowToolType {
			m.workflow(below(of.Path, names[i]), addressable(v).FieldByName("w"), messages.WorkflowPart{Branch: true})
		}
	}
	if a.Overflow != nil {
		m.workflow(below(of.Path, "Overflow"), reflect.ValueOf(a).Elem().FieldByName("Overflow"), messages.WorkflowPart{})
	}
}

// asks adds v as a part that calls a model once.
func (m *parts) asks(of messages.WorkflowPart, kind, name, prompt string, p llm.Provider) {
	of.Kind, of.Name, of.Model, of.Description = kind, name, p.Model, cmp.Or(of.Description, excerpt.FirstLine(prompt))
	m.add(of)
}

// readable returns v so that it can be read even if an unexported field holds it.
func readable(v reflect.Value) reflect.Value {
	if v.CanInterface() || !v.CanAddr() {
		return v
	}
	return reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem()
}

// addressable returns v, or a copy of it whose fields readable can read.
func addressable(v reflect.Value) reflect.Value {
	if v.CanAddr() {
		return v
	}
	held := reflect.New(v.Type()).Elem()
	held.Set(v)
	return held
}

func below(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// clipped returns at most maxPartText bytes of text; a shortened text ends with "…".
func clipped(text string) string {
	if len(text) <= maxPartText {
		return text
	}
	return excerpt.Clip(text, maxPartText-len("…")) + "…"
}

// namesOf returns up to 32 clipped names, then the number of the others.
func namesOf(names []string) []string {
	const most = 32
	var told []string
	for i, name := range names {
		if i == most {
			return append(told, fmt.Sprintf("and %d more", len(names)-most))
		}
		told = append(told, clipped(name))
	}
	return told
}

func budgetOf(b run.Budget) messages.Budget {
	return messages.Budget{MicroUSD: b.MicroUSD, Steps: b.Steps, TimeMS: b.Time.Milliseconds(), Tokens: b.Tokens}
}

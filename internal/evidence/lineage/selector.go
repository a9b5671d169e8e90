package lineage

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Selector selects runs by their data in the graph:
//
//	tool=run_shell and state in (failed, timed_out) and not agent=critic
//	under=7f3a2b1c and older=2h
//
// A condition is about a whole run. If its field has several values, it holds if one of
// them matches: tool=grep means that some step of the run called grep, tool!=grep that
// none did. A star in a value stands for any text. [SelectorFields] lists the fields.
//
// A Selector is immutable and safe for concurrent use.
type Selector struct{ root expr }

// Limits of a selector's text.
const (
	MaxSelector      = 4096 // bytes
	MaxSelectorDepth = 50   // nested parentheses and nots
)

// String returns the selector in a canonical form, which [ParseSelector] reads.
func (s *Selector) String() string {
	var b strings.Builder
	s.root.write(&b, 0)
	return b.String()
}

// Bind returns a selector in which resolve replaced each value of a field that names a
// run or a session, for example an abbreviated id by the full one. Values with a star
// are unchanged. It fails with the first error of resolve.
func (s *Selector) Bind(resolve func(field, value string) (string, error)) (*Selector, error) {
	root, err := s.root.bind(resolve)
	if err != nil {
		return nil, err
	}
	return &Selector{root}, nil
}

// SelectorField is a property of a run that a condition can test.
type SelectorField struct {
	Name string
	Doc  string

	id     bool // names a run or a session
	plain  bool // does not accept a star
	check  func(value string) (problem string)
	answer func(s *subject, value string) bool // instead of facts
	facts  func(s *subject) []string
}

// SelectorFields returns the fields, in the order of the documentation.
func SelectorFields() []SelectorField { return slices.Clone(selectorFields) }

// tagField begins the names of the fields about tags.
const tagField = "tag."

// fieldAliases are alternative names of fields.
var fieldAliases = map[string]string{"status": "state"}

var selectorFields = []SelectorField{
	{Name: "run", Doc: "its id", id: true, facts: func(s *subject) []string { return []string{string(s.run.ID)} }},
	{Name: "workflow", Doc: "the workflow of the run", facts: func(s *subject) []string { return []string{s.run.Workflow} }},
	{Name: "by", Doc: "the user who submitted it, also again", facts: func(s *subject) []string { return []string{s.run.By, s.run.Via} }},
	{Name: "revision", Doc: "the revision of the workflow", facts: func(s *subject) []string { return []string{s.run.Revision} }},
	{
		Name: "state", Doc: "queued, running, waiting, needs_review, succeeded, failed, cancelled, timed_out",
		check: func(v string) string {
			if strings.Contains(v, "*") || slices.Contains(runStates, run.State(v)) {
				return ""
			}
			return "a state: " + orList(runStates)
		},
		facts: func(s *subject) []string { return []string{string(s.run.State)} },
	},
	{
		Name: tagField + "KEY", Doc: "the value of its tag KEY: tag.customer=acme",
		facts: func(s *subject) []string { return nil }, // fieldNamed makes the field of a key
	},
	{Name: "code", Doc: "the code of its error or review", facts: func(s *subject) []string { return []string{string(s.run.Code)} }},
	{Name: "session", Doc: "a session it wrote to", id: true, facts: func(s *subject) []string { return texts(s.run.Sessions) }},
	{Name: "under", Doc: "its session, or an ancestor of it by forks", id: true, plain: true, answer: (*subject).under},
	{
		Name: "parent", Doc: "the run with it as a branch of a fan-out", id: true,
		facts: func(s *subject) []string {
			if s.run.BranchOf == nil {
				return nil
			}
			return []string{string(s.run.BranchOf.Run)}
		},
	},
	{
		Name: "branch", Doc: "yes or no: it is a branch of a fan-out", plain: true, check: yesOrNo,
		answer: func(s *subject, v string) bool { return (s.run.BranchOf != nil) == (v == "yes") },
	},
	{Name: "name", Doc: "the name of a branch it wrote to", facts: func(s *subject) []string { return s.steps().names }},
	{Name: "agent", Doc: "an agent of a step", facts: func(s *subject) []string { return s.steps().agents }},
	{Name: "tool", Doc: "a called tool", facts: func(s *subject) []string { return s.steps().tools }},
	{Name: "model", Doc: "a model with an answer", facts: func(s *subject) []string { return s.steps().models }},
	{Name: "node", Doc: "a node of its steps, by name or incarnation", facts: func(s *subject) []string { return s.steps().nodes }},
	{
		Name: "quarantined", Doc: "yes or no: its session is quarantined", plain: true,
		check:  yesOrNo,
		answer: func(s *subject, v string) bool { return (s.run.Quarantine != "") == (v == "yes") },
	},
	{
		Name: "older", Doc: "submitted more than this time ago: 90s, 15m, 2h, 7d", plain: true,
		check: func(v string) string {
			if _, err := ParseAge(v); err != nil {
				return "an age, such as 90s, 15m, 2h or 7d"
			}
			return ""
		},
		answer: func(s *subject, v string) bool {
			d, err := ParseAge(v)
			return err == nil && s.now.Sub(s.run.Submitted) > d
		},
	},
}

func yesOrNo(v string) string {
	if v == "yes" || v == "no" {
		return ""
	}
	return "yes or no"
}

var runStates = []run.State{run.Queued, run.Running, run.Waiting, run.NeedsReview, run.Succeeded, run.Failed, run.Cancelled, run.TimedOut}

func texts[T ~string](in []T) []string {
	out := make([]string, len(in))
	for i, v := range in {
		out[i] = string(v)
	}
	return out
}

// orList writes "a, b or c".
func orList[T ~string](in []T) string {
	words := texts(in)
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// ParseAge parses an age: a Go duration, or a number of days, such as 36h or 30d.
func ParseAge(v string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(v, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil && n <= 36500 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	} else if d, err := time.ParseDuration(v); err == nil && d >= 0 {
		return d, nil
	}
	return 0, fmt.Errorf("lineage: %q is no age, such as 36h or 30d", v)
}

// Select returns the runs of a tenant that a selector matches, newest first; nil matches
// all. Ages are relative to now.
func (g *Graph) Select(t session.Tenant, s *Selector, now time.Time) []Run {
	g.mu.Lock()
	defer g.mu.Unlock()
	trees := map[session.ID]map[session.Key]bool{}
	var out []Run
	for k := range g.index.runs {
		if k.tenant != t {
			continue
		}
		if r, ok := g.index.run(k); ok && s.chooses(&subject{g: &g.index, key: k, run: &r, now: now, trees: trees}) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Run) int {
		return cmp.Or(b.Submitted.Compare(a.Submitted), cmp.Compare(b.ID, a.ID))
	})
	return out
}

func (s *Selector) chooses(r *subject) bool { return s == nil || s.root.holds(r) }

// Under returns a session that is the home, or an ancestor of the home, of every run that
// the selector matches; "" if it requires none. asks reports whether any condition is
// about ancestors: then the selector needs the records of whole trees.
func (s *Selector) Under() (id session.ID, asks bool) {
	if s == nil {
		return "", false
	}
	s.root.each(func(c condition) { asks = asks || c.field.Name == "under" })
	all, ok := s.root.(allOf)
	if !ok {
		all = allOf{s.root}
	}
	for _, e := range all {
		if c, ok := e.(condition); ok && c.field.Name == "under" && !c.not && len(c.values) == 1 {
			return session.ID(c.values[0]), true
		}
	}
	return "", asks
}

// Names reports whether a selector has a condition on one of the fields.
func (s *Selector) Names(fields ...string) (has bool) {
	if s != nil {
		s.root.each(func(c condition) { has = has || slices.Contains(fields, c.field.Name) })
	}
	return has
}

// subject is a run that conditions are tested on.
type subject struct {
	g     *index
	key   runKey
	run   *Run
	now   time.Time
	trees map[session.ID]map[session.Key]bool // of the sessions asked for, for all subjects
	facts *stepFacts                          // of its steps, computed on demand
}

// stepFacts are the distinct names in the records of a run's steps.
type stepFacts struct{ agents, tools, models, nodes, names []string }

func (s *subject) steps() *stepFacts {
	if s.facts != nil {
		return s.facts
	}
	s.facts = &stepFacts{}
	put := func(list *[]string, text string) {
		if text != "" && !slices.Contains(*list, text) {
			*list = append(*list, text)
		}
	}
	for k := range s.g.runs[s.key] {
		t := s.g.sessions[k].tidy()
		for _, r := range t.of(s.key.run) {
			if opens(r.Kind) {
				continue
			}
			if t.opening != nil {
				put(&s.facts.names, t.opening.Name)
			}
			put(&s.facts.agents, r.Agent)
			put(&s.facts.tools, r.Tool)
			put(&s.facts.models, r.Model)
			put(&s.facts.nodes, r.Node)
		}
	}
	return s.facts
}

// under reports whether the run's home is a session or a descendant of it.
func (s *subject) under(id string) bool {
	root := session.ID(id)
	tree, ok := s.trees[root]
	if !ok {
		tree = map[session.Key]bool{}
		for queue := []session.Key{{Tenant: s.key.tenant, ID: root}}; len(queue) > 0; queue = queue[1:] {
			if k := queue[0]; !tree[k] {
				tree[k] = true
				queue = append(queue, s.g.kids(k)...)
			}
		}
		s.trees[root] = tree
	}
	return tree[s.run.Home]
}

// expr is a node of a selector. The place passed to write is the precedence of the
// context: 0 none, 1 within or, 2 within and, 3 after not.
type expr interface {
	holds(s *subject) bool
	write(b *strings.Builder, place int)
	bind(resolve func(field, value string) (string, error)) (expr, error)
	each(f func(condition))
}

type (
	anyOf  []expr
	allOf  []expr
	notExp struct{ of expr }
	// condition holds if one of the values matches one of the run's.
	condition struct {
		field  *SelectorField
		not    bool
		values []string
	}
)

func (e anyOf) holds(s *subject) bool {
	return slices.ContainsFunc(e, func(x expr) bool { return x.holds(s) })
}

func (e allOf) holds(s *subject) bool {
	return !slices.ContainsFunc(e, func(x expr) bool { return !x.holds(s) })
}

func (e notExp) holds(s *subject) bool { return !e.of.holds(s) }

func (e anyOf) each(f func(condition)) {
	for _, x := range e {
		x.each(f)
	}
}

func (e allOf) each(f func(condition)) { anyOf(e).each(f) }

func (e notExp) each(f func(condition)) { e.of.each(f) }

func (e condition) each(f func(condition)) { f(e) }

func (e condition) holds(s *subject) bool {
	if e.field.answer != nil {
		return e.not != slices.ContainsFunc(e.values, func(v string) bool { return e.field.answer(s, v) })
	}
	facts := e.field.facts(s)
	return e.not != slices.ContainsFunc(e.values, func(v string) bool {
		return slices.ContainsFunc(facts, func(f string) bool { return fits(v, f) })
	})
}

// fits reports whether a text matches a pattern, in which a star stands for any text.
func fits(pattern, text string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, head)
	if !ok {
		return false
	}
	for {
		part, more, star := strings.Cut(rest, "*")
		if !star {
			return strings.HasSuffix(text, part)
		}
		_, after, found := strings.Cut(text, part)
		if !found {
			return false
		}
		text, rest = after, more
	}
}

func (e anyOf) write(b *strings.Builder, place int) { writeList(b, e, " or ", 1, place) }
func (e allOf) write(b *strings.Builder, place int) { writeList(b, e, " and ", 2, place) }

func writeList(b *strings.Builder, list []expr, word string, own, place int) {
	if place > own {
		b.WriteByte('(')
		defer b.WriteByte(')')
	}
	for i, x := range list {
		if i > 0 {
			b.WriteString(word)
		}
		x.write(b, own+1)
	}
}

func (e notExp) write(b *strings.Builder, _ int) {
	b.WriteString("not ")
	e.of.write(b, 3)
}

func (e condition) write(b *strings.Builder, _ int) {
	b.WriteString(e.field.Name)
	if len(e.values) == 1 {
		if e.not {
			b.WriteByte('!')
		}
		b.WriteString("=" + quoteValue(e.values[0]))
		return
	}
	if e.not {
		b.WriteString(" not")
	}
	b.WriteString(" in (")
	for i, v := range e.values {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quoteValue(v))
	}
	b.WriteByte(')')
}

func bindList(list []expr, resolve func(field, value string) (string, error)) ([]expr, error) {
	out := make([]expr, len(list))
	for i, x := range list {
		var err error
		if out[i], err = x.bind(resolve); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (e anyOf) bind(resolve func(field, value string) (string, error)) (expr, error) {
	list, err := bindList(e, resolve)
	return anyOf(list), err
}

func (e allOf) bind(resolve func(field, value string) (string, error)) (expr, error) {
	list, err := bindList(e, resolve)
	return allOf(list), err
}

func (e notExp) bind(resolve func(field, value string) (string, error)) (expr, error) {
	of, err := e.of.bind(resolve)
	return notExp{of}, err
}

func (e condition) bind(resolve func(field, value string) (string, error)) (expr, error) {
	if !e.field.id {
		return e, nil
	}
	e.values = slices.Clone(e.values)
	for i, v := range e.values {
		if strings.Contains(v, "*") {
			continue
		}
		id, err := resolve(e.field.Name, v)
		if err != nil {
			return nil, err
		}
		e.values[i] = id
	}
	return e, nil
}

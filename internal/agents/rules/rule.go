package rules

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Rule is a verdict and its conditions, all of which must hold. An empty condition holds
// for every call.
type Rule struct {
	Verdict Verdict
	Where   string // it stands, as in "rules.yaml:7"
	Reason  string // for the person who approves, or the model; "" has none

	Tenants   []string
	Workflows []string // patterns of [path.Match], as the ones of agents and tools
	Agents    []string
	Tools     []string
	Commands  []string // patterns of simple commands, such as "git status *"
	Paths     []string // patterns of paths in the workspace, such as "docs/**"
	Hosts     []string // names, or "*.example.com"
	Args      map[string]string
	Amount    *Amount

	commands []commandPattern
}

// Amount is a condition on a number in the arguments.
type Amount struct {
	Arg string // its name; "order.total" is the total in order
	// Bound is the greatest number that a rule allows. A rule that asks or refuses is for
	// greater ones.
	Bound float64
}

// maxConditions bounds the patterns of a rule.
const maxConditions = 256

// check prepares a rule.
func (r *Rule) check() error {
	if n := len(r.Commands) + len(r.Paths) + len(r.Hosts) + len(r.Tools) + len(r.Agents) + len(r.Workflows) + len(r.Args); n > maxConditions {
		return fmt.Errorf("%d patterns, at most %d are possible", n, maxConditions)
	}
	for _, text := range r.Commands {
		p, err := parseCommand(text)
		if err == nil && r.Verdict == Allow {
			err = p.allows()
		}
		if err != nil {
			return fmt.Errorf("command: %w", err)
		}
		r.commands = append(r.commands, p)
	}
	for _, p := range r.Paths {
		if path.IsAbs(p) || slices.Contains(strings.Split(p, "/"), "..") {
			return fmt.Errorf("path: %q: want a path in the workspace, such as docs/**", p)
		}
	}
	for i, h := range r.Hosts {
		r.Hosts[i] = strings.ToLower(h)
		if strings.ContainsAny(h, "/:@") || strings.Contains(strings.TrimPrefix(h, "*."), "*") && h != "*" {
			return fmt.Errorf("host: %q: want a name such as api.example.com or *.example.com", h)
		}
	}
	for _, p := range slices.Concat(r.Workflows, r.Agents, r.Tools, r.Paths) {
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Errorf("%q is no pattern: %w", p, err)
		}
	}
	if r.Amount != nil && r.Amount.Arg == "" {
		return fmt.Errorf("amount: name the argument")
	}
	return nil
}

func anyOf(patterns []string, text string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := path.Match(p, text)
		return ok || p == "*"
	})
}

// named reports whether the conditions hold that do not look at the arguments.
func (r *Rule) named(c *Call) bool {
	return (len(r.Tenants) == 0 || slices.Contains(r.Tenants, c.Tenant)) && anyOf(r.Workflows, c.Workflow) && anyOf(r.Agents, c.Agent) && anyOf(r.Tools, c.Tool)
}

// matches reports how far the rule matches a call, except for the commands of one that
// allows.
func (r *Rule) matches(f *facts) match {
	m := holds(r.named(f.call))
	if m == no {
		return no
	}
	strict := r.Verdict != Allow
	if len(r.commands) > 0 && strict {
		m = min(m, r.someCommand(f))
	}
	if len(r.Paths) > 0 {
		m = min(m, r.pathsMatch(f, strict))
	}
	if len(r.Hosts) > 0 {
		m = min(m, r.hostsMatch(f, strict))
	}
	for name, pattern := range r.Args {
		m = min(m, argMatches(f, name, pattern, strict))
	}
	if r.Amount != nil {
		m = min(m, r.Amount.matches(f, strict))
	}
	return m
}

// someCommand reports whether one of the simple commands matches.
func (r *Rule) someCommand(f *facts) match {
	l, ok := f.line()
	if !ok {
		return no
	}
	m := no
	if l.unsure != "" {
		m = maybe
	}
	for _, c := range l.commands {
		for i := range r.commands {
			if m == yes {
				return yes
			}
			m = max(m, r.commands[i].perhaps(c))
		}
	}
	return m
}

// covers marks the simple commands that the rule allows.
func (r *Rule) covers(l *line, covered []bool) {
	for i, c := range l.commands {
		for at := range r.commands {
			covered[i] = covered[i] || r.commands[at].surely(c)
		}
	}
}

// hasPath reports whether a pattern matches a path. For a rule that asks or refuses, a path
// outside of the workspace has each of its ends as well: the place of the workspace may not
// be known.
func (r *Rule) hasPath(name string, strict bool) bool {
	outside := strings.HasPrefix(name, "../")
	for {
		if slices.ContainsFunc(r.Paths, func(p string) bool { return matchPath(p, name) }) {
			return true
		}
		_, end, ok := strings.Cut(name, "/")
		if !ok || !strict || !outside {
			return false
		}
		name = end
	}
}

func (r *Rule) pathsMatch(f *facts, strict bool) match {
	one := func(name string) bool { return r.hasPath(name, strict) }
	names, m := f.paths()
	if !strict {
		return min(m, holds(len(names) > 0 && !slices.ContainsFunc(names, func(n string) bool { return !one(n) })))
	}
	if slices.ContainsFunc(names, one) || slices.ContainsFunc(f.words(), func(w string) bool { return one(f.clean(w)) }) {
		return yes
	}
	if l, ok := f.line(); ok && l.unsure != "" {
		return maybe
	}
	if m == yes { // these are all
		return no
	}
	return m
}

func (r *Rule) hostsMatch(f *facts, strict bool) match {
	one := func(host string) bool {
		return slices.ContainsFunc(r.Hosts, func(p string) bool { return matchHost(p, host) })
	}
	hosts := f.hosts(strict)
	if strict {
		if l, ok := f.line(); ok && l.unsure != "" && !slices.ContainsFunc(hosts, one) {
			return maybe
		}
		return holds(slices.ContainsFunc(hosts, one))
	}
	return holds(len(hosts) > 0 && !slices.ContainsFunc(hosts, func(h string) bool { return !one(h) }))
}

// argMatches compares an argument that is a text, a number or a truth value.
func argMatches(f *facts, name, pattern string, strict bool) match {
	v, ok := f.arg(name)
	var text string
	switch v := v.(type) {
	case string:
		text = v
	case json.Number:
		text = v.String()
	case bool:
		text = strconv.FormatBool(v)
	default:
		if ok && strict {
			return maybe // a list or an object may have it inside
		}
		return no
	}
	p := wordPattern{text: pattern}
	return holds(p.matches(text))
}

// matches compares an amount. One that is missing or no number may be any.
func (a *Amount) matches(f *facts, strict bool) match {
	v, _ := f.arg(a.Arg)
	n, ok := v.(json.Number)
	value, err := n.Float64()
	switch {
	case !ok || err != nil:
		return maybe
	case strict:
		return holds(value > a.Bound)
	}
	return holds(value >= 0 && value <= a.Bound)
}

package rules

import (
	"fmt"
	"os"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/rathcluster/rath/internal/models/listfile"
)

// List is an operator's list of rules. It does not change, and is safe for concurrent use.
type List struct {
	File      string
	Rules     []*Rule
	Otherwise Verdict // of a call that no rule matches

	programs map[string][]int // the rules that are about commands of a program alone
	others   []int
}

// maxRules bounds the rules of a list.
const maxRules = 1000

// Decide decides about a call. A nil List allows every call.
func (l *List) Decide(c *Call) Decision {
	if l == nil {
		return Decision{}
	}
	f := &facts{call: c}
	var strictest, allowed *Rule
	verdict := Allow
	var covered []bool
	for _, i := range l.about(f) {
		r := l.Rules[i]
		m := r.matches(f)
		switch {
		case m == no:
		case r.Verdict == Allow && m == yes && len(r.commands) == 0:
			allowed = r
		case r.Verdict == Allow && m == yes:
			if text, ok := f.line(); ok && text.unsure == "" {
				if covered == nil {
					covered = make([]bool, len(text.commands))
				}
				r.covers(text, covered)
				if !slices.Contains(covered, false) {
					allowed = r
				}
			}
		case r.Verdict == Allow: // it does not match for sure
		case m == yes && r.Verdict > verdict:
			verdict, strictest = r.Verdict, r
		case m == maybe && verdict < Ask:
			verdict, strictest = Ask, r
		}
	}
	switch {
	case strictest != nil:
		return Decision{verdict, strictest.because(verdict)}
	case allowed != nil:
		return Decision{Allow, allowed.because(Allow)}
	}
	reason := "no rule allows this"
	if l.Otherwise == Allow {
		reason = "no rule is about this"
	} else if text, ok := f.line(); ok {
		reason += text.notAllowed(covered)
	}
	return Decision{l.Otherwise, reason}
}

// index prepares about.
func (l *List) index() {
	l.programs = map[string][]int{}
	for i, r := range l.Rules {
		names := map[string]bool{}
		for at := range r.commands {
			first := &r.commands[at].words[0]
			if !first.literal {
				clear(names)
				break
			}
			names[first.text] = true
		}
		for name := range names {
			l.programs[name] = append(l.programs[name], i)
		}
		if len(names) == 0 {
			l.others = append(l.others, i)
		}
	}
}

// about returns the rules that a call may match, in order.
func (l *List) about(f *facts) []int {
	text, ok := f.line()
	all := slices.Clone(l.others)
	if !ok {
		return all
	}
	open := func(c simple) bool { return c[0].unread || c[0].globs }
	if text.unsure != "" || slices.ContainsFunc(text.commands, open) { // perhaps any command
		all = all[:0]
		for i := range l.Rules {
			all = append(all, i)
		}
		return all
	}
	for _, c := range text.commands {
		all = append(all, l.programs[c[0].text]...)
		if c[0].name != "" {
			all = append(all, l.programs[c[0].name]...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// because returns the reason of a decision by the rule.
func (r *Rule) because(v Verdict) string {
	text := fmt.Sprintf("rule %s (%s)", r.Where, r.Verdict)
	if v < r.Verdict {
		text += " may match"
	}
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	return text
}

// Read reads a list from a file. The name "default" is that of the default rules, and ""
// has no list.
func Read(file string) (*List, error) {
	switch file {
	case "":
		return nil, nil
	case "default":
		return Default(), nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	return Parse(file, data)
}

// Parse reads a list. Its errors name file, line and remedy.
func Parse(file string, data []byte) (*List, error) {
	p, top, err := listfile.Parse(file, "rules", data)
	if err != nil {
		return nil, err
	}
	l := &List{File: file, Otherwise: Ask}
	p.Fields(top, "the list", map[string]func(*yaml.Node){
		"otherwise": func(n *yaml.Node) { l.Otherwise = verdictOf(p, n, "otherwise") },
		"rules": func(n *yaml.Node) {
			if n.Kind != yaml.SequenceNode || len(n.Content) > maxRules {
				p.Fail(n.Line, "rules: want a list of at most %d, such as \"- {allow: true, tool: [grep]}\"", maxRules)
				return
			}
			for _, n := range n.Content {
				l.Rules = append(l.Rules, ruleOf(p, n))
			}
		},
	})
	if err := p.Err(); err != nil {
		return nil, err
	}
	l.index()
	return l, nil
}

func verdictOf(p *listfile.Parser, n *yaml.Node, field string) Verdict {
	for i, name := range verdicts {
		if n.Value == name {
			return Verdict(i) //nolint:gosec // one of three
		}
	}
	p.Fail(n.Line, "%s: %q: want allow, ask or refuse", field, n.Value)
	return Refuse
}

func ruleOf(p *listfile.Parser, n *yaml.Node) *Rule {
	r, before, verdict := &Rule{Where: fmt.Sprintf("%s:%d", p.File, n.Line), Verdict: Refuse}, p.Mistakes(), false
	texts := func(into *[]string, field string) func(*yaml.Node) {
		return func(n *yaml.Node) {
			if n.Kind == yaml.ScalarNode {
				*into = []string{p.Text(n, field)}
			} else if *into = p.Texts(n, field); len(*into) == 0 {
				p.Fail(n.Line, "%s: an empty list; leave it out to match every call", field)
			}
		}
	}
	p.Fields(n, "rule", map[string]func(*yaml.Node){
		"verdict":  func(n *yaml.Node) { r.Verdict, verdict = verdictOf(p, n, "verdict"), true },
		"reason":   func(n *yaml.Node) { r.Reason = p.Text(n, "reason") },
		"tenant":   texts(&r.Tenants, "tenant"),
		"workflow": texts(&r.Workflows, "workflow"),
		"agent":    texts(&r.Agents, "agent"),
		"tool":     texts(&r.Tools, "tool"),
		"command":  texts(&r.Commands, "command"),
		"path":     texts(&r.Paths, "path"),
		"host":     texts(&r.Hosts, "host"),
		"args": func(n *yaml.Node) {
			r.Args = map[string]string{}
			p.Each(n, "args", func(key, value *yaml.Node) { r.Args[key.Value] = p.Text(value, key.Value) })
		},
		"amount": func(n *yaml.Node) {
			r.Amount = &Amount{}
			p.Fields(n, "amount", map[string]func(*yaml.Node){
				"arg": func(n *yaml.Node) { r.Amount.Arg = p.Text(n, "arg") },
				"bound": func(n *yaml.Node) {
					var err error
					if r.Amount.Bound, err = strconv.ParseFloat(n.Value, 64); err != nil || !(r.Amount.Bound >= 0) {
						p.Fail(n.Line, "bound: %q: want a number such as 100", n.Value)
					}
				},
			})
		},
	})
	if p.Mistakes() > before {
		return r
	}
	if !verdict {
		p.Fail(n.Line, "rule: want a verdict: allow, ask or refuse")
	} else if err := r.check(); err != nil {
		p.Fail(n.Line, "rule: %v", err)
	}
	return r
}

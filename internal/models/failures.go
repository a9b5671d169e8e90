package models

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rathcluster/rath/llm"
)

// failures reads the signs of the classes of failures of a model's server: for each
// class one set of signs, or a list of them.
func (p *parser) failures(n *yaml.Node, what string) (all []llm.FailureRule) {
	what += ": failures"
	p.Each(n, what, func(key, value *yaml.Node) {
		if !slices.Contains(llm.FailureClasses(), key.Value) {
			p.Fail(key.Line, "%s: class %q: want one of %s", what, llm.Clip(key.Value, 40), strings.Join(llm.FailureClasses(), ", "))
			return
		}
		sets := []*yaml.Node{value}
		if value.Kind == yaml.SequenceNode {
			sets = value.Content
		}
		for _, set := range sets {
			if r, ok := p.failure(set, llm.Code(key.Value), what); ok {
				all = append(all, r)
			}
		}
	})
	if len(all) > llm.MaxFailures {
		p.Fail(n.Line, "%s: %d sets of signs, at most %d are read", what, len(all), llm.MaxFailures)
	}
	return all
}

func (p *parser) failure(n *yaml.Node, class llm.Code, what string) (r llm.FailureRule, ok bool) {
	r.Code = class
	what += ": " + string(class)
	before := p.Mistakes()
	signs := func(to *[]string, name string) func(*yaml.Node) {
		return func(n *yaml.Node) {
			if *to = p.Texts(n, what+": "+name); len(*to) == 0 && p.Mistakes() == before {
				p.Fail(n.Line, "%s: %s: want a list, such as [a, b]", what, name)
			}
		}
	}
	p.Fields(n, what, map[string]func(*yaml.Node){
		"status": func(n *yaml.Node) {
			for _, text := range p.Texts(n, what+": status") {
				s, err := strconv.Atoi(text)
				if err != nil || s < 400 || s > 599 {
					p.Fail(n.Line, "%s: status %q: want the statuses of a failure, such as [400, 422]", what, llm.Clip(text, 40))
					return
				}
				r.Status = append(r.Status, s)
			}
		},
		"code": signs(&r.Codes, "code"), "words": signs(&r.Words, "words"), "regex": signs(&r.Regex, "regex"),
	})
	if p.Mistakes() > before {
		return r, false
	}
	if err := r.Validate(); err != nil {
		p.Fail(n.Line, "%s: %s", what, strings.TrimPrefix(err.Error(), class.Error()+": "))
		return r, false
	}
	return r, true
}

// timeouts reads the timeouts of a model's calls.
func (p *parser) timeouts(n *yaml.Node, what string) (t llm.Timeouts) {
	what += ": timeouts"
	before := p.Mistakes()
	p.Fields(n, what, map[string]func(*yaml.Node){
		"connect":     p.length(&t.Connect, what, "connect", llm.MinTimeout, llm.MaxConnect),
		"first_token": p.length(&t.FirstToken, what, "first_token", llm.MinTimeout, llm.MaxTimeout),
		"silence":     p.length(&t.Silence, what, "silence", llm.MinTimeout, llm.MaxTimeout),
		"whole":       p.length(&t.Whole, what, "whole", llm.MinTimeout, llm.MaxTimeout),
	})
	if t == (llm.Timeouts{}) && p.Mistakes() == before {
		p.Fail(n.Line, "%s: want connect, first_token, silence or whole", what)
	}
	return t
}

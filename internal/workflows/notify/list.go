package notify

import (
	"fmt"
	"net/mail"
	"net/netip"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rathcluster/rath/internal/models/listfile"
	"github.com/rathcluster/rath/session"
)

// The forms of targets.
const (
	FormStandard = "standard" // an HTTP request as Standard Webhooks defines it
	FormSlack    = "slack"    // an HTTP request with one line of text
	FormMail     = "mail"     // an e-mail by SMTP
)

// List is an operator's list of targets and rules. It does not change.
type List struct {
	File    string
	Link    string // the base of links; "" makes none
	targets []*target
	rules   []*rule
}

// target is a receiver of notifications.
type target struct {
	name, form string
	url        string // reference
	secret     string // reference: the key of signatures, or the password
	server     string // of mail: smtp://host:port, or smtps://
	user       string
	from       string
	to         []string
	private    []netip.Prefix // non-public addresses that it may have
}

// rule selects events for a target.
type rule struct {
	tenant    session.Tenant
	on        []string
	workflows []string // patterns; empty is all
	to        string
	after     time.Duration // until the reminder; 0 sends none
	again     string        // target of the reminder
}

// everywhere are all addresses.
var everywhere = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// Read reads a list from a file. Paths of secrets are relative to its directory.
func Read(file string) (*List, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("targets: %w", err)
	}
	return Parse(file, data)
}

// Parse reads a list. Its errors name file, line and remedy.
func Parse(file string, data []byte) (*List, error) {
	lp, top, err := listfile.Parse(file, "targets", data)
	if err != nil {
		return nil, err
	}
	p, l := parser{lp}, &List{File: file}
	var rules *yaml.Node
	p.Fields(top, "the list", map[string]func(*yaml.Node){
		"link": func(n *yaml.Node) {
			l.Link = strings.TrimSuffix(p.Text(n, "link"), "/")
			if u, err := url.Parse(l.Link); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.Fragment != "" {
				p.Fail(n.Line, "link: want the address of the pages, such as https://rath.example.com")
			}
		},
		"targets": func(n *yaml.Node) {
			p.Each(n, "targets", func(key, value *yaml.Node) { l.targets = append(l.targets, p.target(key, value)) })
		},
		"rules": func(n *yaml.Node) { rules = n },
	})
	switch {
	case len(l.targets) == 0 && p.Mistakes() == 0:
		p.Fail(top.Line, "the list has no targets; put them below \"targets:\"")
	case rules == nil && p.Mistakes() == 0:
		p.Fail(top.Line, "the list has no rules; put them below \"rules:\", as \"- {on: [question], to: %s}\"", l.targets[0].name)
	case rules != nil && rules.Kind != yaml.SequenceNode:
		p.Fail(rules.Line, "rules: want a list, as \"- {on: [question], to: NAME}\"")
	case rules != nil:
		for _, n := range rules.Content {
			l.rules = append(l.rules, p.rule(n, l))
		}
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	return l, nil
}

// parser reads one list.
type parser struct{ *listfile.Parser }

// target reads an entry.
func (p *parser) target(key, n *yaml.Node) *target {
	t := &target{name: key.Value}
	entry := "target " + t.name
	if session.ValidID("target", t.name) != nil {
		p.Fail(key.Line, "targets: %q: want a name of 1 to 64 of A-Z a-z 0-9 _ -", t.name)
	}
	text := func(to *string, field string) func(*yaml.Node) {
		return func(n *yaml.Node) { *to = p.Text(n, entry+": "+field) }
	}
	has := map[string]bool{}
	fields := map[string]func(*yaml.Node){
		"form":     text(&t.form, "form"),
		"url":      func(n *yaml.Node) { t.url = p.Key(n, entry, "url") },
		"secret":   func(n *yaml.Node) { t.secret = p.Key(n, entry, "secret") },
		"password": func(n *yaml.Node) { t.secret = p.Key(n, entry, "password") },
		"server":   text(&t.server, "server"),
		"user":     text(&t.user, "user"),
		"from":     func(n *yaml.Node) { t.from = p.address(n, entry+": from") },
		"to": func(n *yaml.Node) {
			if n.Kind != yaml.SequenceNode {
				p.Fail(n.Line, "%s: to: want a list of addresses, as [ops@example.com]", entry)
				return
			}
			for _, one := range n.Content {
				t.to = append(t.to, p.address(one, entry+": to"))
			}
		},
		"private": func(n *yaml.Node) { t.private = p.private(n, entry) },
	}
	for name, read := range fields {
		fields[name] = func(n *yaml.Node) { has[name] = true; read(n) }
	}
	before := p.Mistakes()
	p.Fields(n, entry, fields)
	if p.Mistakes() == before {
		p.complete(t, n.Line, entry, has)
	}
	return t
}

// complete checks that a target has the fields of its form and no others.
func (p *parser) complete(t *target, line int, entry string, has map[string]bool) {
	needs, may := []string{"url"}, []string{"form", "private"}
	switch t.form {
	case FormSlack:
	case FormStandard:
		needs = append(needs, "secret")
	case FormMail:
		needs, may = []string{"server", "from", "to"}, append(may, "user", "password")
		u, err := url.Parse(t.server)
		if err != nil || u.Scheme != "smtp" && u.Scheme != "smtps" || u.Hostname() == "" || u.Port() == "" || u.User != nil || u.Path != "" {
			p.Fail(line, "%s: server: want smtp://HOST:PORT, or smtps:// for TLS from the start", entry)
		}
		if has["user"] != has["password"] {
			p.Fail(line, "%s: user and password belong together; name both, or neither", entry)
		}
	default:
		p.Fail(line, "%s: form: want %s, %s or %s", entry, FormStandard, FormSlack, FormMail)
		return
	}
	for _, name := range needs {
		if !has[name] {
			p.Fail(line, "%s: form %s needs %s", entry, t.form, name)
		}
	}
	for name := range has {
		if !slices.Contains(needs, name) && !slices.Contains(may, name) {
			p.Fail(line, "%s: form %s has no %s; remove it", entry, t.form, name)
		}
	}
}

// address reads the address of a mailbox.
func (p *parser) address(n *yaml.Node, field string) string {
	text := p.Text(n, field)
	a, err := mail.ParseAddress(text)
	if err != nil || a.Name != "" || a.Address != text {
		p.Fail(n.Line, "%s: want an address alone, as ops@example.com", field)
	}
	return text
}

// private reads the non-public addresses that a target may have.
func (p *parser) private(n *yaml.Node, entry string) (all []netip.Prefix) {
	if n.Kind == yaml.ScalarNode {
		if p.Yes(n, entry+": private") {
			return everywhere
		}
		return nil
	}
	for _, text := range p.Texts(n, entry+": private") {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, netip.PrefixFrom(a, a.BitLen()))
			continue
		}
		r, err := netip.ParsePrefix(text)
		if err != nil {
			p.Fail(n.Line, "%s: private: %q: want true, or a list of addresses and ranges, as [10.1.0.0/16]", entry, text)
		}
		all = append(all, r)
	}
	return all
}

// rule reads a rule of a list whose targets are known.
func (p *parser) rule(n *yaml.Node, l *List) *rule {
	r := &rule{tenant: session.DefaultTenant}
	named := func(n *yaml.Node, field string) string {
		name := p.Text(n, field)
		if l.target(name) == nil {
			p.Fail(n.Line, "%s: there is no target %.40q; name one below \"targets:\"", field, name)
		}
		return name
	}
	before := p.Mistakes()
	p.Fields(n, "rule", map[string]func(*yaml.Node){
		"tenant": func(n *yaml.Node) {
			r.tenant = session.Tenant(p.Text(n, "rule: tenant"))
			if session.ValidID("tenant", string(r.tenant)) != nil {
				p.Fail(n.Line, "rule: tenant %.80q: want the name of a tenant", r.tenant)
			}
		},
		"on": func(n *yaml.Node) {
			for _, kind := range p.Texts(n, "rule: on") {
				if indexOf(kind) < 0 {
					p.Fail(n.Line, "rule: on: %.40q: want question, failed, stuck, budget or deadletter", kind)
				}
				r.on = append(r.on, kind)
			}
		},
		"workflows": func(n *yaml.Node) {
			for _, pattern := range p.Texts(n, "rule: workflows") {
				if _, err := path.Match(pattern, ""); err != nil {
					p.Fail(n.Line, "rule: workflows: %.80q: want a name, or a pattern as review*", pattern)
				}
				r.workflows = append(r.workflows, pattern)
			}
		},
		"to": func(n *yaml.Node) { r.to = named(n, "rule: to") },
		"again": func(n *yaml.Node) {
			p.Fields(n, "rule: again", map[string]func(*yaml.Node){
				"after": func(n *yaml.Node) {
					var err error
					if r.after, err = time.ParseDuration(n.Value); err != nil || r.after < minAfter || r.after > maxAfter {
						p.Fail(n.Line, "rule: again: after: want a time from 1s to 168h, as 30m")
					}
				},
				"to": func(n *yaml.Node) { r.again = named(n, "rule: again: to") },
			})
			if r.after == 0 || r.again == "" {
				p.Fail(n.Line, "rule: again: want after and to, as {after: 30m, to: NAME}")
			}
		},
	})
	switch {
	case p.Mistakes() > before:
	case len(r.on) == 0 || r.to == "":
		p.Fail(n.Line, "rule: want on and to, as {on: [question], to: NAME}")
	case r.again != "" && !slices.Contains(r.on, Question):
		p.Fail(n.Line, "rule: again: it is for open questions; add question to \"on\", or remove it")
	}
	return r
}

// Limits of a reminder's time.
const (
	minAfter = time.Second
	maxAfter = 7 * 24 * time.Hour
)

func indexOf(kind string) int {
	for i := range kinds {
		if kinds[i].kind == kind {
			return i
		}
	}
	return -1
}

// target returns the target with a name, nil if there is none.
func (l *List) target(name string) *target {
	i := slices.IndexFunc(l.targets, func(t *target) bool { return t.name == name })
	if i < 0 {
		return nil
	}
	return l.targets[i]
}

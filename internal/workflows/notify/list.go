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
	formStandard = "standard" // an HTTP request as Standard Webhooks defines it
	formSlack    = "slack"    // an HTTP request with one line of text
	formMail     = "mail"     // an e-mail by SMTP
)

// List is an operator's list of targets and rules.
type List struct {
	File    string
	Link    string // the base of links; "" makes none
	targets map[string]*target
	rules   []*rule
}

// reference names the place of a secret: env:NAME or file:PATH.
type reference string

// target is a receiver of notifications.
type target struct {
	name, form   string
	url          reference
	secret       reference // the key of signatures, or the password
	server, user string    // of mail: smtp://host:port or smtps://host:port, and its login
	from         string
	to           []string
	private      []netip.Prefix // non-public addresses that it may have
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

// maxAfter bounds the time of a reminder.
const maxAfter = 7 * 24 * time.Hour

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
	p, l := parser{lp}, &List{File: file, targets: map[string]*target{}}
	rules := &yaml.Node{Line: top.Line}
	p.fields(top, "the list", map[string]any{
		"link": &l.Link,
		"targets": func(n *yaml.Node) {
			p.Each(n, "targets", func(key, n *yaml.Node) { l.targets[key.Value] = p.target(key.Value, n) })
		},
		"rules": func(n *yaml.Node) { rules = n },
	})
	l.Link = strings.TrimSuffix(l.Link, "/")
	if u, err := url.Parse(l.Link); l.Link != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery+u.Fragment != "") {
		p.Fail(top.Line, "link: want the address of the pages, such as https://rath.example.com")
	}
	for _, n := range rules.Content {
		l.rules = append(l.rules, p.rule(n, l))
	}
	if rules.Kind != yaml.SequenceNode || len(l.rules) == 0 {
		p.Fail(rules.Line, "rules: want a list of at least one, as \"- {on: [question], to: NAME}\"")
	}
	return l, p.Err()
}

// parser reads one list.
type parser struct{ *listfile.Parser }

// fields reads known fields into values by their types.
func (p *parser) fields(n *yaml.Node, entry string, into map[string]any) {
	read := map[string]func(*yaml.Node){}
	for name, value := range into {
		field := entry + ": " + name
		read[name] = func(n *yaml.Node) {
			switch v := value.(type) {
			case *string:
				*v = p.Text(n, field)
			case *[]string:
				*v = p.Texts(n, field)
			case *reference:
				*v = reference(p.Key(n, entry, name))
			case *time.Duration:
				var err error
				if *v, err = time.ParseDuration(n.Value); err != nil || *v < time.Second || *v > maxAfter {
					p.Fail(n.Line, "%s: want a time from 1s to 168h, as 30m", field)
				}
			case func(*yaml.Node):
				v(n)
			}
		}
	}
	p.Fields(n, entry, read)
}

// target reads an entry.
func (p *parser) target(name string, n *yaml.Node) *target {
	t, entry, before := &target{name: name}, "target "+name, p.Mistakes()
	p.fields(n, entry, map[string]any{
		"form": &t.form, "url": &t.url, "secret": &t.secret, "password": &t.secret, "server": &t.server, "user": &t.user, "from": &t.from, "to": &t.to,
		"private": func(n *yaml.Node) { t.private = p.private(n, entry+": private") },
	})
	u, err := url.Parse(t.server)
	http, smtp := t.url != "", t.server+t.user+t.from != "" || t.to != nil
	fail := func(text string) { p.Fail(n.Line, "%s: %s", entry, text) }
	switch {
	case p.Mistakes() > before:
	case session.ValidID("target", name) != nil:
		fail("its name: want 1 to 64 of A-Z a-z 0-9 _ -")
	case t.form == formSlack && (!http || smtp || t.secret != ""):
		fail("form slack: want url, and perhaps private, alone")
	case t.form == formStandard && (!http || smtp || t.secret == ""):
		fail("form standard: want url and secret, and perhaps private, alone")
	case t.form == formMail && (err != nil || u.Scheme != "smtp" && u.Scheme != "smtps" || u.Hostname() == "" || u.Port() == "" || u.User != nil || u.Path != ""):
		fail("server: want smtp://HOST:PORT, or smtps:// for TLS from the start")
	case t.form == formMail && (http || len(t.to) == 0 || (t.user == "") != (t.secret == "")):
		fail("form mail: want server, from, to, and perhaps private, or user and password together")
	case t.form == formMail:
		for _, text := range append([]string{t.from}, t.to...) {
			if a, err := mail.ParseAddress(text); err != nil || a.Address != text {
				fail(fmt.Sprintf("%.80q: want the address of a mailbox alone, as ops@example.com", text))
			}
		}
	case t.form != formSlack && t.form != formStandard:
		fail("form: want standard, slack or mail")
	}
	return t
}

// private reads the non-public addresses that a target may have.
func (p *parser) private(n *yaml.Node, field string) (all []netip.Prefix) {
	if n.Kind == yaml.ScalarNode {
		if p.Yes(n, field) {
			return everywhere
		}
		return nil
	}
	for _, text := range p.Texts(n, field) {
		r, err := netip.ParsePrefix(text)
		if a, alone := netip.ParseAddr(text); alone == nil {
			r, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			p.Fail(n.Line, "%s: %q: want true, or a list of addresses and ranges, as [10.1.0.0/16]", field, text)
		}
		all = append(all, r)
	}
	return all
}

// rule reads a rule of a list whose targets are known.
func (p *parser) rule(n *yaml.Node, l *List) *rule {
	r, tenant, before := &rule{}, string(session.DefaultTenant), p.Mistakes()
	p.fields(n, "rule", map[string]any{
		"tenant": &tenant, "on": &r.on, "workflows": &r.workflows, "to": &r.to,
		"again": func(n *yaml.Node) {
			p.fields(n, "rule: again", map[string]any{"after": &r.after, "to": &r.again})
		},
	})
	r.tenant = session.Tenant(tenant)
	unknown := func(kind string) bool { return kinds[kind].text == "" || kind == reminder }
	malformed := func(pattern string) bool { _, err := path.Match(pattern, ""); return err != nil }
	fail := func(text string) { p.Fail(n.Line, "rule: %s", text) }
	switch {
	case p.Mistakes() > before:
	case session.ValidID("tenant", tenant) != nil:
		fail("tenant: want the name of a tenant")
	case len(r.on) == 0 || slices.ContainsFunc(r.on, unknown):
		fail("on: want a list of question, failed, stuck, budget and deadletter")
	case slices.ContainsFunc(r.workflows, malformed):
		fail("workflows: want names, or patterns as review*")
	case l.targets[r.to] == nil, r.again != "" && l.targets[r.again] == nil:
		fail("to: want the name of a target of the list")
	case (r.again == "") != (r.after == 0), r.again != "" && !slices.Contains(r.on, Question):
		fail("again: want after and to, as {after: 30m, to: NAME}, in a rule on question")
	}
	return r
}

package scripted

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/tools/txtar"

	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// filePrefix starts the names of sections that are files.
const filePrefix = "work/"

// Parse reads a script. name is used in messages only. An error names the line and the
// problem.
func Parse(name string, data []byte) (*Script, error) {
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("script %s: not valid UTF-8", name)
	}
	a := txtar.Parse(bytes.TrimLeft(data, "\uFEFF"))
	s := &Script{Name: name, Comment: strings.Trim(unix(a.Comment), "\n")}
	line := 1 + bytes.Count(a.Comment, []byte("\n"))
	for _, f := range a.Files {
		line++ // the first line after the section's head
		if strings.HasPrefix(f.Name, filePrefix) {
			s.files = append(s.files, file{Name: f.Name, Data: bytes.Clone(f.Data)})
		} else {
			r := rule{Name: f.Name}
			if at, err := r.parse(unix(f.Data)); err != nil {
				return nil, fmt.Errorf("script %s:%d: rule %s: %w", name, line+at, f.Name, err)
			}
			s.rules = append(s.rules, r)
		}
		line += bytes.Count(f.Data, []byte("\n"))
	}
	if err := s.validate(); err != nil {
		return nil, err
	}
	return s, nil
}

// unix converts the line ends of a checkout on Windows.
func unix(data []byte) string { return strings.ReplaceAll(string(data), "\r\n", "\n") }

// parse reads the section of a rule; at is the line for error messages.
func (r *rule) parse(section string) (at int, err error) {
	head, body, _ := cutBlank(section)
	said := false // the rule has a reply, even an empty one
	seen := map[string]bool{}
	for i, l := range strings.Split(head, "\n") {
		l = strings.TrimSpace(l)
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		key, value, ok := strings.Cut(l, ":")
		if !ok {
			return i, fmt.Errorf("line %q: want \"key: value\"; the text of the reply comes after a blank line", llm.Clip(l, 60))
		}
		if value = strings.TrimSpace(value); strings.HasPrefix(value, `"`) {
			if value, err = strconv.Unquote(value); err != nil {
				return i, fmt.Errorf("%s: the quoted text is not a Go string", key)
			}
		}
		key = strings.TrimSpace(key)
		kind, err := r.set(key, value)
		if err != nil {
			return i, fmt.Errorf("%s: %w", key, err)
		}
		if kind != isCondition && key != "call" && key != "raw-call" && seen[key] {
			return i, fmt.Errorf("%s: is there twice", key)
		}
		seen[key] = true
		said = said || kind == isAnswer
	}
	if body = strings.Trim(body, "\n"); body != "" {
		if r.Reply.Text != "" {
			return 0, errors.New("has a text after the blank line and another one in text: give one of them")
		}
		r.Reply.Text, said = body, true
	}
	if !said {
		return 0, errors.New(`says nothing: add a text after a blank line, a call:, or text: ""`)
	}
	return 0, nil
}

// cutBlank cuts s at its first blank line.
func cutBlank(s string) (before, after string, found bool) {
	rest := s
	for rest != "" {
		line, next, _ := strings.Cut(rest, "\n")
		if strings.TrimSpace(line) == "" {
			return s[:len(s)-len(rest)], next, true
		}
		rest = next
	}
	return s, "", false
}

// kind is the role of a rule's line.
type kind int

const (
	isCondition kind = iota
	isManner         // how to answer
	isAnswer         // a part of the answer
)

// set handles one line.
func (r *rule) set(key, value string) (k kind, err error) {
	p := &r.Reply
	switch key {
	case "times":
		r.Times, err = number(value)
		return isManner, err
	case "text":
		p.Text = value
	case "echo":
		p.Echo, err = strconv.ParseBool(value)
		if err != nil {
			err = errors.New("want true or false")
		}
	case "reasoning":
		p.Reasoning = value
	case "call", "raw-call":
		var c session.ToolCall
		c, err = parseCall(value, key == "raw-call")
		p.Calls = append(p.Calls, c)
	case "finish":
		p.Finish = llm.Finish(value)
		return isManner, nil
	case "usage":
		return isManner, parseUsage(value, &p.Usage)
	case "delay":
		p.Delay, err = duration(value)
		return isManner, err
	case "gap":
		p.Gap, err = duration(value)
		return isManner, err
	case "retry-after":
		p.RetryAfter, err = duration(value)
		return isManner, err
	case "code":
		p.Code = llm.Code(value)
	case "status":
		p.Status, err = number(value)
	case "fault":
		p.Fault = value
	default:
		c := cond{Key: key, Value: value}
		if rest, ok := strings.CutPrefix(key, "not "); ok {
			c.Not, c.Key = true, strings.TrimSpace(rest)
		}
		r.When = append(r.When, c)
		return isCondition, c.validate()
	}
	return isAnswer, err
}

// parseCall reads "name [@id] args". Raw arguments are read verbatim.
func parseCall(s string, raw bool) (session.ToolCall, error) {
	var c session.ToolCall
	c.Name, c.Args, _ = strings.Cut(s, " ")
	if id, ok := strings.CutPrefix(c.Args, "@"); ok {
		c.ID, c.Args, _ = strings.Cut(id, " ")
	}
	if c.Name == "" {
		return c, errors.New(`want "name {arguments}"`)
	}
	if raw {
		return c, nil
	}
	if c.Args = strings.TrimSpace(c.Args); c.Args == "" {
		c.Args = "{}"
	}
	if !json.Valid([]byte(c.Args)) {
		return c, fmt.Errorf("arguments %q are not JSON (raw-call: takes anything)", llm.Clip(c.Args, 60))
	}
	return c, nil
}

// usageFields are the words of a usage line, in the order of Format.
func usageFields(u *session.Usage) []struct {
	name string
	n    *int64
} {
	return []struct {
		name string
		n    *int64
	}{
		{"input", &u.Input},
		{"output", &u.Output},
		{"cache_read", &u.CacheRead},
		{"cache_write", &u.CacheWrite},
		{"micro_usd", &u.MicroUSD},
	}
}

func parseUsage(s string, u *session.Usage) error {
	fields := usageFields(u)
next:
	for f := range strings.FieldsSeq(s) {
		name, value, _ := strings.Cut(f, "=")
		for _, g := range fields {
			if g.name == name {
				n, err := strconv.ParseInt(value, 10, 64)
				if err != nil || n < 0 {
					return fmt.Errorf("%s: want a number", f)
				}
				*g.n = n
				continue next
			}
		}
		return fmt.Errorf("%s: want input=N, output=N, cache_read=N, cache_write=N or micro_usd=N", f)
	}
	return nil
}

func number(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || strconv.Itoa(n) != s {
		return 0, fmt.Errorf("%q: want a number from 1 on", s)
	}
	return n, nil
}

func duration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > time.Hour {
		return 0, fmt.Errorf("%q: want a duration such as 50ms, at most 1h", s)
	}
	return d, nil
}

func (c cond) validate() error {
	switch c.Key {
	case keyModel, keySystem, keyUser, keyTool, keyLast, keyContains, keyResult, keyOffers:
		if c.Value == "" {
			return errors.New("want a text")
		}
		return nil
	case keyTurn, keyRound, keyAttempt, keyTry:
		_, err := number(c.Value)
		return err
	default:
		return fmt.Errorf("there is no such key (%s; and of the reply: text echo reasoning call raw-call finish usage delay gap code status retry-after fault)",
			"model system user tool last contains result offers turn round attempt try times")
	}
}

// validate checks that the script can be used and formatted.
func (s *Script) validate() error {
	fail := func(name string, err error) error { return fmt.Errorf("script %s: %s: %w", s.Name, name, err) }
	if len(s.rules) == 0 {
		return fmt.Errorf("script %s: no rules; a rule is a section that starts with a line such as \"-- greeting --\"", s.Name)
	}
	if hasMarker(s.Comment) || strings.HasPrefix(s.Comment, "\uFEFF") || s.Comment != strings.Trim(s.Comment, "\n") || !clean(s.Comment) {
		return fail("comment", errors.New("must be UTF-8 without section lines and without blank lines at the ends"))
	}
	seen := map[string]bool{}
	for i := range s.rules {
		r := &s.rules[i]
		if seen[r.Name] {
			return fail("rule "+r.Name, errors.New("there are two rules of that name"))
		}
		seen[r.Name] = true
		if err := r.validate(); err != nil {
			return fail("rule "+r.Name, err)
		}
	}
	for _, f := range s.files {
		if seen[f.Name] || !strings.HasPrefix(f.Name, filePrefix) || !nameOK(f.Name) {
			return fail("file "+f.Name, errors.New("want a unique name that starts with "+filePrefix))
		}
		seen[f.Name] = true
		if n := len(f.Data); n > 0 && f.Data[n-1] != '\n' || !utf8.Valid(f.Data) || hasMarker(string(f.Data)) {
			return fail("file "+f.Name, errors.New("must be UTF-8, end in a newline and have no section lines"))
		}
	}
	return nil
}

func (r *rule) validate() error {
	p := &r.Reply
	if !nameOK(r.Name) || strings.HasPrefix(r.Name, filePrefix) {
		return errors.New("want a name of printable characters")
	}
	for _, c := range r.When {
		if err := c.validate(); err != nil {
			return fmt.Errorf("%s: %w", c.Key, err)
		}
		if !utf8.ValidString(c.Value) {
			return fmt.Errorf("%s: not valid UTF-8", c.Key)
		}
	}
	switch p.Finish {
	case "", llm.FinishStop, llm.FinishLength, llm.FinishFilter:
	case llm.FinishTools:
		if len(p.Calls) == 0 {
			return errors.New("finish: tool_calls needs a call")
		}
	default:
		return fmt.Errorf("finish: %q: want stop, length, tool_calls or content_filter", p.Finish)
	}
	if p.Code != "" && !slices.Contains(llm.Codes(), p.Code) {
		return fmt.Errorf("code: %q is none of %q", string(p.Code), codeNames())
	}
	if p.Status != 0 && (p.Status < 300 || p.Status > 599) {
		return fmt.Errorf("status: %d: want 300 to 599", p.Status)
	}
	if p.Fault != "" && !slices.Contains(faults, p.Fault) {
		return fmt.Errorf("fault: %q: want one of %v", p.Fault, faults)
	}
	if p.Fault != "" && (p.Status != 0 || p.Code != "" && p.Fault != faultError) {
		return errors.New("fault: does not go with code or status")
	}
	for _, d := range []time.Duration{p.Delay, p.Gap, p.RetryAfter} {
		if d < 0 || d > time.Hour {
			return fmt.Errorf("duration %v: want 0 to 1h", d)
		}
	}
	for _, f := range usageFields(&p.Usage) {
		if *f.n < 0 {
			return fmt.Errorf("usage: %s is negative", f.name)
		}
	}
	if r.Times < 0 || !utf8.ValidString(p.Text) || !utf8.ValidString(p.Reasoning) {
		return errors.New("want valid UTF-8 and times of 0 or more")
	}
	for _, c := range p.Calls {
		if c.Name == "" || strings.ContainsAny(c.Name, " \n") || strings.ContainsAny(c.ID, " \n") || !utf8.ValidString(c.Name+c.ID+c.Args) {
			return fmt.Errorf("call %q: want a name and an id without spaces", llm.Clip(c.Name, 40))
		}
	}
	return nil
}

// codeNames lists the codes as a script writes them: a Code prints as an error.
func codeNames() []string {
	var names []string
	for _, c := range llm.Codes() {
		names = append(names, string(c))
	}
	return names
}

func nameOK(s string) bool {
	return s != "" && s == strings.TrimSpace(s) && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// clean reports whether s survives a text file.
func clean(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\r") }

// hasMarker reports whether txtar would find a section in s.
func hasMarker(s string) bool {
	return len(txtar.Parse([]byte(s)).Files) > 0
}

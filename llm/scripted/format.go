package scripted

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/rathcluster/rath/session"
)

// Format writes s so that [Parse] returns an equal script. It fails if s is
// not valid.
func (s *Script) Format() ([]byte, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	var b strings.Builder
	if s.Comment != "" {
		b.WriteString(s.Comment + "\n\n")
	}
	for i := range s.rules {
		if i > 0 {
			b.WriteString("\n")
		}
		s.rules[i].format(&b)
	}
	for _, f := range s.files {
		fmt.Fprintf(&b, "-- %s --\n%s", f.Name, f.Data)
	}
	return []byte(b.String()), nil
}

func (r *rule) format(b *strings.Builder) {
	p := r.Reply
	fmt.Fprintf(b, "-- %s --\n", r.Name)
	line := func(key, value string) {
		if value != "" {
			fmt.Fprintf(b, "%s: %s\n", key, quote(value))
		}
	}
	for _, c := range r.When {
		key := c.Key
		if c.Not {
			key = "not " + key
		}
		line(key, c.Value)
	}
	if r.Times > 0 {
		line("times", strconv.Itoa(r.Times))
	}
	line("code", string(p.Code))
	if p.Status != 0 {
		line("status", strconv.Itoa(p.Status))
	}
	if p.RetryAfter != 0 {
		line("retry-after", p.RetryAfter.String())
	}
	line("fault", p.Fault)
	if p.Delay != 0 {
		line("delay", p.Delay.String())
	}
	if p.Gap != 0 {
		line("gap", p.Gap.String())
	}
	line("reasoning", p.Reasoning)
	for _, c := range p.Calls {
		b.WriteString(formatCall(c))
	}
	line("finish", string(p.Finish))
	if p.Usage != (session.Usage{}) {
		b.WriteString("usage:")
		for _, f := range usageFields(&p.Usage) {
			if *f.n != 0 {
				fmt.Fprintf(b, " %s=%d", f.name, *f.n)
			}
		}
		b.WriteString("\n")
	}
	if p.Echo {
		line("echo", "true")
	}
	switch {
	case p.Text == "":
		b.WriteString("text: \"\"\n")
	case p.Text == strings.Trim(p.Text, "\n") && clean(p.Text) && !hasMarker(p.Text+"\n") && !strings.ContainsFunc(p.Text, hidden):
		b.WriteString("\n" + p.Text + "\n")
	default:
		line("text", p.Text)
	}
}

func formatCall(c session.ToolCall) string {
	value := c.Name
	if c.ID != "" || strings.HasPrefix(c.Args, "@") {
		value += " @" + c.ID
	}
	if json.Valid([]byte(c.Args)) && c.Args == strings.TrimSpace(c.Args) {
		return "call: " + quote(value+" "+c.Args) + "\n"
	}
	if c.Args != "" {
		value += " " + c.Args
	}
	return "raw-call: " + quote(value) + "\n"
}

// quote writes a value so that it is one line and reads back the same.
func quote(s string) string {
	if s == "" || s != strings.TrimSpace(s) || s[0] == '"' || strings.ContainsFunc(s, unicode.IsControl) || strings.ContainsFunc(s, hidden) {
		return strconv.Quote(s)
	}
	return s
}

// hidden are characters that an editor changes or does not show.
func hidden(r rune) bool {
	return r == '\uFEFF' || r == '\u2028' || r == '\u2029' || unicode.IsControl(r) && r != '\n' && r != '\t'
}

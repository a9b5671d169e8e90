// Package scripted is a language model that answers from a script: for tests,
// demonstrations, benchmarks and for working without a key.
//
// A [Script] is a list of rules, usually read from a txtar file. A rule has conditions
// on the request and an answer; the first matching rule answers. The choice depends on
// the contents of the request, not on its time. A run that is replayed, retried or
// continued on another machine therefore gets the same answers again:
//
//	A comment about the script.
//
//	-- search --
//	system: You are the researcher
//	not result: web_search
//	call: web_search {"q": "durable execution"}
//
//	-- summary --
//	result: web_search
//	usage: input=900 output=12
//
//	Durable execution is a journal
//	and a program that is run again.
//
//	-- otherwise --
//	echo: true
//	text: "You said: "
//
// Each section is a rule. Its lines up to the first blank one are "key: value", in any
// order; the rest is the text of the reply, without the blank lines around it. A value
// in double quotes is a Go string, for white space at the ends and for line breaks.
// Lines that start with # are comments. Sections whose name starts with work/ are no
// rules but files, for tests that need a workspace ([Script.WriteFiles]).
//
// The conditions of a rule must all hold. "not " before a key negates it, and a key may
// be repeated:
//
//	model: NAME      the requested model is NAME
//	system: TEXT     a system message contains TEXT
//	user: TEXT       the last user message contains TEXT
//	tool: TEXT       the last tool result contains TEXT
//	last: TEXT       the last message, of any role, contains TEXT
//	contains: TEXT   a message that is not a system message contains TEXT
//	result: NAME     tool NAME gave a result since the last user message
//	offers: NAME     tool NAME is offered
//	turn: N          it is the Nth answer in the transcript
//	round: N         it is the Nth answer since the last user message
//	attempt: N       the step key ends in /N, or in /N. and which request of the
//	                 attempt it is (without a key: N is 1)
//	try: N           it is the Nth request for the answer
//	times: N         the rule has answered less than N times in this process
//
// Only times counts arrivals. It cannot be negated, and a restarted process counts from
// zero. Prefer attempt and try.
//
// The parts of a rule's answer:
//
//	text: TEXT               instead of the text after the blank line
//	echo: true               the last user message is appended to the text
//	reasoning: TEXT
//	call: NAME [@ID] JSON    a tool call; ID is derived if missing
//	raw-call: NAME [@ID] X   the same, with arguments that need not be JSON
//	finish: REASON           stop, length, tool_calls or content_filter
//	usage: input=N output=N cache_read=N cache_write=N micro_usd=N
//	                         (missing: a quarter of the bytes)
//	delay: 50ms              before the first byte
//	gap: 5ms                 between the pieces of a stream
//	code: CODE               fail with this code of package llm; the text is
//	                         the message
//	status: N                fail with this HTTP status
//	retry-after: 2s          the server's wish, with code or status
//	fault: KIND              hang, drop, html, stall, truncate, abort, garbage or error
//
// [Model] runs a script, both as an [llm.Client] in this process and as an HTTP server
// that speaks the OpenAI protocol and keeps a witness log of every request. The package
// does not imitate a model's language or speed beyond delay and gap.
package scripted

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// Script is a list of rules. It is plain data; once a [Model] uses it, it
// must not change.
type Script struct {
	// Name is used in messages, usually a file's name. It is not part of the
	// format.
	Name    string
	Comment string
	rules   []rule
	files   []file // the sections whose name starts with work/
}

// file is a section that is not a rule. Data is empty or ends in a newline.
type file struct {
	Name string
	Data []byte
}

// rule is one section of a script.
type rule struct {
	Name  string // unique in its script
	When  []cond // all must hold
	Times int    // how often the rule answers in one process; 0 is no limit
	Reply reply
}

// The keys of conditions; the package documentation lists them.
const (
	keyModel    = "model"
	keySystem   = "system"
	keyUser     = "user"
	keyTool     = "tool"
	keyLast     = "last"
	keyContains = "contains"
	keyResult   = "result"
	keyOffers   = "offers"
	keyTurn     = "turn"
	keyRound    = "round"
	keyAttempt  = "attempt"
	keyTry      = "try"
)

// cond is one condition of a rule. The value of turn, round, attempt and try
// is a decimal number from 1 on.
type cond struct {
	Key   string
	Not   bool
	Value string
}

// reply is the answer of a rule.
type reply struct {
	Text string
	// Echo appends the last user message to Text.
	Echo      bool
	Reasoning string
	// Calls without an ID get one derived from the request.
	Calls []session.ToolCall
	// Finish is "" for tool_calls if there are calls and stop otherwise.
	Finish llm.Finish
	// Usage is estimated from the bytes if it is zero.
	Usage session.Usage
	// Delay is the time to the first byte, Gap the time between pieces. Zero means
	// those of the model's [Options].
	Delay, Gap time.Duration

	// Code and Status make the call fail, with Text as the message. Each is
	// derived from the other if it is missing.
	Code       llm.Code
	Status     int
	RetryAfter time.Duration
	Fault      string
}

// The faults are failures that no proper answer describes. In-process clients get the
// error that a client of the real protocol would report. Faults in the middle occur
// after half of the answer's pieces.
const (
	// faultHang accepts the request and never answers.
	faultHang = "hang"
	// faultDrop closes the connection instead of answering.
	faultDrop = "drop"
	// faultHTML answers 200 with a web page, as a login proxy does.
	faultHTML = "html"
	// faultStall goes silent in the middle.
	faultStall = "stall"
	// faultTruncate ends the stream in the middle, cleanly.
	faultTruncate = "truncate"
	// faultAbort breaks the connection in the middle.
	faultAbort = "abort"
	// faultGarbage sends text that is not JSON in the middle.
	faultGarbage = "garbage"
	// faultError reports a server error in the middle of the answer; Code is its code
	// (unavailable if missing).
	faultError = "error"
)

var faults = []string{faultHang, faultDrop, faultHTML, faultStall, faultTruncate, faultAbort, faultGarbage, faultError}

// Echo returns the script of the model that requires no key: it repeats the last user
// message after "echo: ".
func Echo() *Script {
	return &Script{Name: "echo", rules: []rule{{Name: "echo", Reply: reply{Text: "echo: ", Echo: true}}}}
}

// Record adds a rule that gives the same answer at the same place of the same
// conversation. Its conditions are the turn, the start of the system text and the start
// of the last message. Of several rules with the same conditions, each except the last
// answers as often as its times states, or once without it. An existing rule with that
// name is kept.
func (s *Script) Record(name string, r *llm.Request, resp *llm.Response) {
	if slices.ContainsFunc(s.rules, func(r rule) bool { return r.Name == name }) {
		return
	}
	added := rule{Name: name, Reply: reply{
		Text: resp.Text, Reasoning: resp.Reasoning, Calls: resp.Calls, Finish: resp.Finish, Usage: resp.Usage,
	}}
	for _, m := range r.Messages {
		if text := head(m.Text); m.Role == llm.System && text != "" {
			added.When = append(added.When, cond{Key: keySystem, Value: text})
			break
		}
	}
	added.When = append(added.When, cond{Key: keyTurn, Value: strconv.Itoa(newView(r).turn)})
	if n := len(r.Messages); n > 0 {
		if text := head(r.Messages[n-1].Text); text != "" {
			added.When = append(added.When, cond{Key: keyLast, Value: text})
		}
	}
	for i := range s.rules {
		if r := &s.rules[i]; r.Times == 0 && slices.Equal(r.When, added.When) {
			r.Times = 1
		}
	}
	s.rules = append(s.rules, added)
}

// Slow multiplies the delays and gaps of the rules; 0 removes them.
func (s *Script) Slow(times int) {
	for i := range s.rules {
		r := &s.rules[i].Reply
		r.Delay, r.Gap = time.Duration(times)*r.Delay, time.Duration(times)*r.Gap
	}
}

// WriteFiles writes the script's files below dir, under their names without "work/".
// It reports whether there are any. If a name leads out of dir, it writes none.
func (s *Script) WriteFiles(dir string) (some bool, err error) {
	local := func(f file) string { return filepath.FromSlash(strings.TrimPrefix(f.Name, filePrefix)) }
	for _, f := range s.files {
		if !filepath.IsLocal(local(f)) {
			return true, fmt.Errorf("script %s: file %s lies outside of the workspace: name it %sPATH, below it", s.Name, f.Name, filePrefix)
		}
	}
	for _, f := range s.files {
		name := filepath.Join(dir, local(f))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, f.Data, 0o644)); err != nil {
			return true, fmt.Errorf("script %s: %w", s.Name, err)
		}
	}
	return len(s.files) > 0, nil
}

// head returns the first non-empty line of s, at most 120 bytes.
func head(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(llm.CleanText(s)), "\n")
	return strings.TrimSpace(strings.TrimSuffix(llm.Clip(line, 120), "…"))
}

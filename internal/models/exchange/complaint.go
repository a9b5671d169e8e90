package exchange

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/llm"
)

// complaint is a server's text about a failure, from any place of its answer.
type complaint struct {
	message string   // the first text
	inner   string   // of the server behind it, which it repeats
	codes   []string // its codes, types and reasons
	said    []string // all texts
	status  int      // that one of its codes stands for, or 0
	wait    time.Duration
	now     time.Time
	size    int
}

// The bounds of a complaint: the depth to which its members, and the parts of a text,
// are searched, and the number of members of a list.
const (
	maxWithin  = 8
	maxMembers = 64
)

// The members of a complaint that are examined, in their order: a text or a part with
// further members; codes; and waits. Other members are ignored, since servers repeat
// the request in some.
var (
	texts = []string{
		"error", "errors", "message", "msg", "detail", "details", "error_message", "error_msg", "errorMessage", "error_description", "description", "title",
		"status_msg", "faultstring", "fault", "cause", "innererror", "inner_error", "base_resp", "metadata", "raw", "headers", "response",
	}
	codes = []string{"code", "type", "status", "reason", "error_code", "errorCode", "error_type", "status_code", "statusCode", "__type", "name"}
	waits = []string{
		"retryDelay", "retry_delay", "retry_after", "retryAfter", "retry-after", "Retry-After", "retry_after_seconds", "estimated_time", "quotaResetDelay", "reset_after", "retry_in", "wait_seconds",
		"X-RateLimit-Reset", "x-ratelimit-reset",
	}
	waitsMs = []string{"retry_after_ms", "retryAfterMs", "retry-after-ms", "Retry-After-Ms"}
)

// complain reads {"error":{...}}, {"error":"..."}, {"object":"error",...},
// {"type":"error","error":{...}}, {"detail":...}, {"message":...} and similar objects.
func complain(raw []byte) (c complaint, ok bool) {
	c.now = time.Now()
	raw = bytes.TrimSpace(raw)
	if len(raw) > 0 && raw[0] != '{' && raw[0] != '[' { // an event of a stream, or words before it
		if i, j := bytes.IndexByte(raw, '{'), bytes.LastIndexByte(raw, '}'); i >= 0 && i < j {
			raw = raw[i : j+1]
		}
	}
	c.read(raw, 0)
	return c, c.message != "" || len(c.codes) > 0
}

// read handles an object, or a list of objects.
func (c *complaint) read(raw json.RawMessage, depth int) {
	if raw = bytes.TrimSpace(raw); depth > maxWithin || len(raw) == 0 || c.size > maxPlain {
		return
	}
	if raw[0] == '[' {
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) == nil {
			for _, one := range list[:min(len(list), maxMembers)] {
				c.member(one, "", depth+1)
			}
		}
		return
	}
	var o map[string]json.RawMessage
	if raw[0] != '{' || json.Unmarshal(raw, &o) != nil {
		return
	}
	for _, key := range codes {
		var w Word
		if v, ok := o[key]; ok && w.UnmarshalJSON(v) == nil && w != "" {
			c.code(string(w))
		}
	}
	for i, key := range append(waits[:len(waits):len(waits)], waitsMs...) {
		if v, ok := o[key]; ok && c.wait == 0 {
			c.wait = c.span(v, i >= len(waits))
		}
	}
	for _, key := range texts {
		if v, ok := o[key]; ok {
			c.member(v, key, depth)
		}
	}
}

// member handles a text, or a value with further members.
func (c *complaint) member(raw json.RawMessage, key string, depth int) {
	if raw = bytes.TrimSpace(raw); !IsSet(raw) {
		return
	}
	if raw[0] != '"' {
		c.read(raw, depth+1)
		return
	}
	var j Joiner
	text := strings.TrimSpace(j.Add(raw) + j.Flush())
	if text == "" {
		return
	}
	if (text[0] == '{' || text[0] == '[') && json.Valid([]byte(text)) { // a complaint within a text
		before := c.message
		c.message = ""
		c.read(json.RawMessage(text), depth+1)
		if before != "" {
			c.message, c.inner = before, c.message
		}
		return
	}
	if c.message == "" {
		c.message = text
	} else if key == "raw" {
		c.inner = text
	}
	text = llm.Clip(text, maxPlain)
	c.size += len(text)
	c.said = append(c.said, text)
}

func (c *complaint) code(s string) {
	if n, err := strconv.Atoi(s); err == nil && n >= 400 && n < 600 && c.status == 0 {
		c.status = n
	}
	s = llm.Clip(llm.CleanText(s), llm.MaxNameLen)
	c.size += len(s)
	c.codes = append(c.codes, s)
	if strings.Trim(s, "0123456789") != "" {
		c.said = append(c.said, s)
	}
}

// span reads a member with a wait: a number of seconds or milliseconds, a text, or the
// duration of a protocol buffer.
func (c *complaint) span(raw json.RawMessage, ms bool) time.Duration {
	var parts struct {
		Seconds Word    `json:"seconds"`
		Nanos   float64 `json:"nanos"`
	}
	if json.Unmarshal(raw, &parts) == nil {
		n, _ := strconv.ParseFloat(string(parts.Seconds), 64)
		return seconds(n + parts.Nanos/1e9)
	}
	var w Word
	_ = w.UnmarshalJSON(raw)
	if n, err := strconv.ParseFloat(string(w), 64); err == nil && ms {
		return seconds(n / 1000)
	}
	return span(string(w), c.now)
}

// class decides the code of a complaint with an HTTP status, or 0. rules are those of the
// class returns the code of a complaint with an HTTP status, or 0. rules are those of
// the model's entry and take precedence.
func (c *complaint) class(status int, rules []llm.FailureRule) llm.Code {
	switch {
	case status == 0, status >= 500 && c.status == http.StatusTooManyRequests: // a gateway's own
		status = c.status
	}
	for i := range rules {
		if rules[i].Matches(status, c.codes, strings.Join(c.said, "\n")) {
			return rules[i].Code
		}
	}
	text, fields := plain(strings.Join(c.said, " ; ")), make([]string, len(c.codes))
	for i := range fields {
		fields[i] = field(c.codes[i])
	}
	for i := range classes {
		if classes[i].matches(status, fields, text) {
			return classes[i].code
		}
	}
	switch {
	case status != 0 && status != http.StatusNotFound:
		return llm.CodeForStatus(status)
	case status == http.StatusNotFound, slices.ContainsFunc(fields, func(f string) bool {
		return strings.HasPrefix(f, "invalidrequest") || strings.HasPrefix(f, "badrequest")
	}):
		return llm.CodeInvalidRequest
	default:
		return llm.CodeUnavailable
	}
}

// asks returns the wait that the complaint requests; 0 if there is none.
func (c *complaint) asks() time.Duration {
	if c.wait > 0 {
		return c.wait
	}
	return waitIn(plain(strings.Join(c.said, " ; ")))
}

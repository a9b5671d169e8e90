package exchange

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/llm"
)

// maxMessage bounds how much of a server's own words an error repeats.
const maxMessage = 300

// Fail makes an error about this endpoint.
func (e *Endpoint) Fail(code llm.Code, status int, format string, args ...any) *llm.Error {
	return &llm.Error{Code: code, Status: status, Message: fmt.Sprintf("model %q at %s: ", e.Model, e.Host) + fmt.Sprintf(format, args...)}
}

// complaint is what a server says about a failure, from whichever place it
// put it.
type complaint struct {
	message, code, kind string
}

// maxWithin is how deep in each other complaints, and the parts of a text, are
// looked for.
const maxWithin = 8

// complain reads {"error":{...}}, {"error":"..."}, {"object":"error",...},
// {"type":"error","error":{...}}, {"detail":...} and {"message":...}.
func complain(raw []byte) (c complaint, ok bool) { return complainWithin(raw, 0) }

func complainWithin(raw []byte, depth int) (c complaint, ok bool) {
	if depth > maxWithin {
		return c, false
	}
	var o struct {
		Error   json.RawMessage `json:"error"`
		Detail  json.RawMessage `json:"detail"`
		Message json.RawMessage `json:"message"`
		Msg     json.RawMessage `json:"msg"`
		Code    Word            `json:"code"`
		Type    Word            `json:"type"`
		Status  Word            `json:"status"`
	}
	raw = bytes.TrimSpace(raw)
	if len(raw) > 0 && raw[0] == '[' { // a list of one error
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
			return c, false
		}
		return complainWithin(list[0], depth+1)
	}
	if json.Unmarshal(raw, &o) != nil {
		return c, false
	}
	c.code, c.kind = string(o.Code), string(o.Type)
	if c.kind == "" {
		c.kind = string(o.Status)
	}
	for _, raw := range []json.RawMessage{o.Error, o.Message, o.Msg, o.Detail} {
		if !IsSet(raw) {
			continue
		}
		if raw[0] != '"' {
			if inner, ok := complainWithin(raw, depth+1); ok {
				if inner.code == "" {
					inner.code = c.code
				}
				return inner, true
			}
			continue
		}
		var j Joiner
		c.message = j.Add(raw)
		return c, true
	}
	return c, c.code != "" || c.kind != ""
}

// phrases tell classes of failures that share a status apart. The first that
// matches wins.
var phrases = []struct {
	code llm.Code
	re   *regexp.Regexp
}{
	{llm.CodeContextLength, regexp.MustCompile(`context_length|context length|context window|context size|exceed_context|prompt is too long|exceed context limit|request_too_large|too many (input )?tokens|maximum number of tokens`)},
	{llm.CodeQuota, regexp.MustCompile(`insufficient_quota|insufficient balance|exceeded your current quota|billing|payment required|insufficient credits|credit balance is too low`)},
	{llm.CodeRefused, regexp.MustCompile(`content_filter|content_policy|content policy|content management policy|responsibleai|safety system`)},
	{llm.CodeAuth, regexp.MustCompile(`invalid_api_key|incorrect api key|invalid api key|authentication_error|unauthorized|permission_denied|permission_error`)},
	{llm.CodeModelNotFound, regexp.MustCompile(`model_not_found|not_found_error model:|model\b.{0,100}(not found|does not exist|not exist|not available|unknown)|(unknown|no such|invalid) model`)},
	{llm.CodeRateLimited, regexp.MustCompile(`rate_limit|rate limit|too many requests|resource_exhausted`)},
	{llm.CodeOverloaded, regexp.MustCompile(`overloaded|at capacity|no capacity|capacity exceeded|engine is busy`)},
}

// class decides the code of a complaint with an HTTP status, or 0.
func (c complaint) class(status int) llm.Code {
	if status == 0 {
		if n, err := strconv.Atoi(c.code); err == nil && n >= 400 && n < 600 {
			status = n
		}
	}
	words := strings.ToLower(llm.Clip(c.code+" "+c.kind+" "+c.message, maxErrorBody))
	for _, p := range phrases {
		if !p.re.MatchString(words) {
			continue
		}
		switch {
		// A status that says "not your fault" or "not yet" outweighs a phrase
		// that says "never", unless it is about money.
		case status >= 500 && p.code != llm.CodeOverloaded && p.code != llm.CodeContextLength:
		case status == http.StatusTooManyRequests && p.code != llm.CodeQuota && p.code != llm.CodeOverloaded:
		case status == http.StatusUnauthorized && p.code != llm.CodeQuota:
		default:
			return p.code
		}
	}
	switch {
	case status != 0 && status != http.StatusNotFound:
		return llm.CodeForStatus(status)
	case status == http.StatusNotFound, strings.Contains(words, "invalid_request"):
		return llm.CodeInvalidRequest
	default:
		return llm.CodeUnavailable
	}
}

// Failure is the error for a complaint in a stream.
func (e *Endpoint) Failure(raw []byte) *llm.Error { return e.serverError(0, nil, raw) }

// serverError is the error for a complaint in a stream, or for a whole answer
// of a failing status.
func (e *Endpoint) serverError(status int, h http.Header, body []byte) *llm.Error {
	c, ok := complain(body)
	code := c.class(status)
	said := c.message
	switch {
	case ok && said == "":
		said = strings.TrimSpace(c.code + " " + c.kind)
	case !ok && status == 0:
		said = "the server reports an error without saying which"
	case !ok:
		said = describe(body, h.Get("Content-Type"))
	}
	said = llm.Clip(llm.Redact(strings.Join(strings.Fields(llm.CleanText(said)), " "), e.key), maxMessage)
	if status != 0 {
		said = fmt.Sprintf("HTTP %d: %s", status, said)
	}
	err := e.Fail(code, status, "%s%s", said, e.remedy(code, status))
	err.RetryAfter = retryAfter(h, time.Now())
	return err
}

func (e *Endpoint) remedy(code llm.Code, status int) string {
	switch {
	case code == llm.CodeAuth && e.key == "":
		return "; no key was sent: set the provider's key_ref to the name of an environment variable that holds one"
	case code == llm.CodeAuth:
		return fmt.Sprintf("; check the key in %s", e.keyName)
	case status == http.StatusNotFound && code == llm.CodeInvalidRequest:
		return fmt.Sprintf("; check that the base URL %s is the root of the API, usually ending in /v1", e.base)
	case code == llm.CodeModelNotFound:
		return "; set the provider's model to one that the server has"
	default:
		return ""
	}
}

var title = regexp.MustCompile(`(?is)<title[^>]*>\s*([^<]{1,80})`)

// describe says what kind of answer body is, without repeating more of it
// than a title: pages and dumps echo prompts and headers.
func describe(body []byte, contentType string) string {
	b := bytes.TrimSpace(body)
	switch {
	case len(b) == 0:
		return "an empty answer"
	case b[0] == '<' || strings.Contains(contentType, "html"):
		if m := title.FindSubmatch(b); m != nil {
			return fmt.Sprintf("a web page titled %q", strings.TrimSpace(string(m[1])))
		}
		return fmt.Sprintf("a web page of %d bytes", len(b))
	case strings.HasPrefix(contentType, "text/plain") && len(b) <= maxMessage:
		return string(b)
	default:
		return fmt.Sprintf("%d bytes that are not JSON", len(b))
	}
}

// retryAfter reads how long a server wants to be left alone.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 && ms < 1e12 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	v := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		if s > 0 && s < 1e9 {
			return time.Duration(s * float64(time.Second))
		}
		return 0
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(t.Sub(now), 0)
	}
	return 0
}

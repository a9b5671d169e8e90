package exchange

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/rathcluster/rath/llm"
)

// maxMessage bounds the part of a server's text that an error repeats.
const maxMessage = 300

// Fail makes an error about this endpoint.
func (e *Endpoint) Fail(code llm.Code, status int, format string, args ...any) *llm.Error {
	return &llm.Error{Code: code, Status: status, Message: fmt.Sprintf("model %q at %s: ", e.Model, e.Host) + fmt.Sprintf(format, args...)}
}

// Failure is the error for a complaint in a stream.
func (e *Endpoint) Failure(raw []byte) *llm.Error { return e.serverError(0, nil, raw) }

// serverError is the error for a complaint in a stream, or for a whole answer
// of a failing status.
func (e *Endpoint) serverError(status int, h http.Header, body []byte) *llm.Error {
	c, ok := complain(body)
	if kind, _, _ := strings.Cut(h.Get("X-Amzn-Errortype"), ":"); kind != "" {
		c.code(kind)
	}
	said := c.message
	if !ok {
		c.member(quote(words(body, h.Get("Content-Type"))), "", 0)
	}
	code := c.class(status, e.failures)
	switch {
	case c.inner != "" && c.inner != said:
		said += ": " + c.inner
	case ok && said == "":
		said = strings.Join(c.codes, " ")
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
	err.RetryAfter = c.after(h, code)
	return err
}

// after returns the wait that the server requests before another try; 0 if there is
// none.
func (c *complaint) after(h http.Header, code llm.Code) time.Duration {
	d := retryAfter(h, c.now)
	if d == 0 && code.Retryable() {
		d = c.asks()
	}
	if d == 0 && (code == llm.CodeRateLimited || code == llm.CodeOverloaded) {
		d = reset(h, c.now)
	}
	return d
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

// maxWords bounds an answer that is not JSON and whose text counts, in bytes: a longer
// one is a dump, which repeats prompts.
const maxWords = 2 << 10

// words is the text of an answer that is not JSON: the title of a page, or a short
// text.
func words(body []byte, contentType string) string {
	b := bytes.TrimSpace(body)
	if m := title.FindSubmatch(b); m != nil {
		return string(m[1])
	}
	if len(b) == 0 || b[0] == '<' || len(b) > maxWords || strings.Contains(contentType, "html") {
		return ""
	}
	return string(b)
}

// describe describes the kind of answer that body is. It repeats at most a title of it:
// pages and dumps echo prompts and headers.
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

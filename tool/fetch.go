package tool

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
	"golang.org/x/net/html/charset"
)

// Limits of fetch.
const (
	MaxFetched   = 4 << 20         // bytes taken of an answer, unpacked
	MaxFetchTime = 2 * time.Minute // the longest timeout_ms

	fetchTime    = 30 * time.Second // without it
	maxRedirects = 10
	maxURL       = 4096 // bytes
	maxLink      = 1000 // bytes of the address of a link in a page
)

type fetchArgs struct {
	URL       string `json:"url" jsonschema:"address that begins with http:// or https://"`
	Offset    int64  `json:"offset,omitempty" jsonschema:"line of the text to start at, the first is 1"`
	Limit     int64  `json:"limit,omitempty" jsonschema:"number of lines to read"`
	TimeoutMS int64  `json:"timeout_ms,omitempty" jsonschema:"milliseconds that the whole fetch may take"`
}

type fetchBody struct {
	Status    int      `json:"status"`
	URL       string   `json:"url,omitempty"` // where redirects led to
	Type      string   `json:"type,omitempty"`
	Data      string   `json:"data"`
	Truncated *cutFile `json:"truncated,omitempty"`
	// Cut reports whether the response was cut at MaxFetched bytes.
	Cut bool `json:"cut,omitempty"`
	// Lossy reports whether bytes that are not text were replaced.
	Lossy bool `json:"lossy,omitempty"`
}

func fetch() Tool {
	return own(Fetch,
		"Gets a text from the network: a page as readable text with its links, other text as it is. "+
			"Of a long one the head and the tail are shown: read on with offset and limit.",
		Sandboxed, func(p map[string]*jsonschema.Schema) {
			p["url"].MinLength, p["url"].MaxLength = new(1), new(maxURL)
			p["offset"].Minimum, p["limit"].Minimum = new(1.0), new(1.0)
			p["timeout_ms"].Minimum, p["timeout_ms"].Maximum = new(1.0), new(float64(MaxFetchTime.Milliseconds()))
			p["timeout_ms"].Default = fmt.Appendf(nil, "%d", fetchTime.Milliseconds())
		}, get)
}

func get(ctx context.Context, c Call, in fetchArgs) (any, error) {
	u, err := url.Parse(in.URL)
	switch {
	case err != nil:
		return nil, &Failure{Kind: InvalidArguments, Message: "url is no address: write it whole, as https://example.org/page", Detail: in.URL, Err: err}
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, &Failure{Kind: InvalidArguments, Message: fmt.Sprintf("the scheme %q is not fetched, http and https are: write the address whole, as https://example.org/page", u.Scheme), Detail: in.URL}
	case u.Hostname() == "":
		return nil, &Failure{Kind: InvalidArguments, Message: "url names no host: write it whole, as https://example.org/page", Detail: in.URL}
	case u.User != nil:
		return nil, &Failure{Kind: InvalidArguments, Message: "url holds a name or a password, which is not sent: leave it out"}
	}
	var way http.RoundTripper
	if c.HTTP != nil {
		if way, err = c.HTTP(ctx); err != nil {
			return nil, unopened(err)
		}
	}
	if way == nil {
		return nil, &Failure{
			Kind: Unsupported, Detail: u.Hostname(),
			Message: `this run may reach no host; a person allows one with rath run --allow HOST, or "sandbox":{"network":"list:HOST"} of the task`,
		}
	}
	within := cmp.Or(time.Duration(in.TimeoutMS)*time.Millisecond, fetchTime)
	timed, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	body, err := ask(timed, way, u, in)
	switch {
	case err == nil:
		return body, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case timed.Err() != nil:
		return nil, &Failure{Kind: Timeout, Message: fmt.Sprintf("%s did not answer whole within %v: try again with a larger timeout_ms, at most %d", u.Hostname(), within, MaxFetchTime.Milliseconds()), Err: err}
	}
	if f, ok := errors.AsType[*Failure](err); ok {
		return nil, f
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // drops the URL, which may be long
	}
	return nil, &Failure{Kind: Unreachable, Message: err.Error(), Detail: u.Hostname(), Err: err}
}

// ask sends the request and follows its redirects.
func ask(ctx context.Context, way http.RoundTripper, u *url.URL, in fetchArgs) (*fetchBody, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "rath")
	r.Header.Set("Accept", "text/markdown, text/html;q=0.9, text/plain;q=0.8, */*;q=0.5")
	client := http.Client{Transport: way, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		switch {
		case len(via) > maxRedirects:
			return fmt.Errorf("it is redirected more than %d times", maxRedirects)
		case r.URL.Scheme != "http" && r.URL.Scheme != "https":
			return fmt.Errorf("it is redirected to the scheme %q, which is not fetched", r.URL.Scheme)
		}
		r.URL.User = nil
		return nil
	}}
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body := &fetchBody{Status: resp.StatusCode, Type: clip(resp.Header.Get("Content-Type"), 100)}
	if to := resp.Request.URL.String(); to != u.String() {
		body.URL = clip(to, maxURL)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, MaxFetched+1))
	if err != nil {
		return nil, fmt.Errorf("the answer broke off after %d bytes: %w", len(data), err)
	}
	if body.Cut = len(data) > MaxFetched; body.Cut {
		data = []byte(headOf(data, MaxFetched))
	}
	text, err := readable(data, resp.Header.Get("Content-Type"), resp.Request.URL)
	if err != nil {
		return nil, err
	}
	var e excerpt
	if err := e.read(text, in.Offset, in.Limit); err != nil {
		return nil, err
	}
	body.Data, body.Lossy = e.text(), e.lossy
	if e.chars > MaxShown {
		body.Truncated = &cutFile{Chars: e.chars, Lines: e.lines}
	}
	return body, nil
}

// sniffed is the length of the prefix of a response that determines its type, in bytes.
const sniffed = 1024

// readable returns a response as UTF-8, with HTML reduced to its visible text. A response
// that is not text is a Failure.
func readable(data []byte, contentType string, at *url.URL) (io.Reader, error) {
	head := data[:min(len(data), sniffed)]
	seems, _, _ := mime.ParseMediaType(http.DetectContentType(head))
	says, _, _ := mime.ParseMediaType(contentType)
	encoding, name, certain := charset.DetermineEncoding(head, contentType)
	if !certain && utf8.Valid(data) {
		name = "utf-8"
	}
	if !strings.HasPrefix(seems, "text/") && !strings.HasPrefix(name, "utf-16") {
		return nil, &Failure{
			Kind: NotText, Detail: cmp.Or(says, seems),
			Message: fmt.Sprintf("the answer is no text but %s, %d bytes: get it with a command, such as curl -o FILE", cmp.Or(says, seems), len(data)),
		}
	}
	var text io.Reader = bytes.NewReader(data)
	if name != "utf-8" {
		text = encoding.NewDecoder().Reader(text)
	}
	if says == "text/html" || says == "application/xhtml+xml" || says == "" && seems == "text/html" {
		return page(text, at)
	}
	return text, nil
}

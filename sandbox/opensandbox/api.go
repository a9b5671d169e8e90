package opensandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// serverError is an error response of a server.
type serverError struct {
	Op        string // the operation
	Status    int    // of HTTP
	Code      string // of the server, may be ""
	Message   string
	RequestID string // of the request in the server's log, may be ""
}

func (e *serverError) Error() string {
	parts := []string{fmt.Sprintf("%s: the server answers %d", e.Op, e.Status)}
	for _, more := range []string{e.Code, e.Message} {
		if more != "" {
			parts = append(parts, more)
		}
	}
	if e.RequestID != "" {
		parts = append(parts, "request "+e.RequestID)
	}
	return strings.Join(parts, ", ")
}

func statusOf(err error) int {
	if e, ok := errors.AsType[*serverError](err); ok {
		return e.Status
	}
	return 0
}

const (
	keyHeader       = "OPEN-SANDBOX-API-KEY"
	requestIDHeader = "X-Request-ID"

	// requestPatience bounds one request of the lifecycle API.
	requestPatience = 30 * time.Second
	// mostAnswer bounds the bytes read of an answer.
	mostAnswer = 4 << 20
	tries      = 4
)

// retryWait is the wait before the first retry; it doubles with each retry.
const retryWait = 250 * time.Millisecond

// api is the lifecycle API of a server.
type api struct {
	http    *http.Client
	base    *url.URL
	keyFile string
}

type (
	status struct {
		State   string `json:"state"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
	}
	// remote is a sandbox as the server reports it.
	remote struct {
		ID       string            `json:"id"`
		Status   status            `json:"status"`
		Metadata map[string]string `json:"metadata"`
	}
	image struct {
		URI string `json:"uri"`
	}
	platform struct {
		OS   string `json:"os"`
		Arch string `json:"arch"`
	}
	creation struct {
		Image      image             `json:"image"`
		Platform   platform          `json:"platform"`
		Entrypoint []string          `json:"entrypoint"`
		Timeout    int               `json:"timeout"` // seconds
		Limits     map[string]string `json:"resourceLimits"`
		Metadata   map[string]string `json:"metadata"`
	}
	// endpoint is the address of a port of a sandbox, and the headers to send.
	endpoint struct {
		Endpoint string            `json:"endpoint"`
		Headers  map[string]string `json:"headers"`
	}
)

// States of a sandbox. A server may have others; callers wait for them to pass.
const (
	running    = "Running"
	stopping   = "Stopping"
	terminated = "Terminated"
	failed     = "Failed"
)

// transient reports whether a request may succeed if it is repeated.
func transient(err error) bool {
	switch statusOf(err) {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case 0:
		return err != nil
	}
	return false
}

// again repeats a request until it succeeds, fails permanently or was made tries times.
func again(ctx context.Context, do func() error) error {
	wait := retryWait
	for n := 1; ; n++ {
		err := do()
		if !transient(err) || n == tries {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
		wait *= 2
	}
}

// call makes one request. in and out may be nil.
func (a *api) call(ctx context.Context, op, method, path string, query url.Values, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	u := a.base.JoinPath(path)
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	// Read the key for each request, so that it can be replaced.
	key, err := os.ReadFile(a.keyFile)
	if err != nil {
		return fmt.Errorf("%s: the API key: %w", op, err)
	}
	req.Header.Set(keyHeader, strings.TrimSpace(string(key)))
	return answer(a.http, op, req, out)
}

// answer sends a request and decodes the JSON response. out may be nil.
func answer(c *http.Client, op string, req *http.Request, out any) error {
	res, err := c.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		return failure(op, res)
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, mostAnswer)).Decode(out); err != nil {
		return fmt.Errorf("%s: read the answer: %w", op, err)
	}
	return nil
}

// failure decodes an error response.
func failure(op string, res *http.Response) error {
	e := &serverError{Op: op, Status: res.StatusCode, RequestID: res.Header.Get(requestIDHeader)}
	var told struct{ Code, Message string }
	data, _ := io.ReadAll(io.LimitReader(res.Body, 4096))
	if json.Unmarshal(data, &told) == nil {
		e.Code, e.Message = told.Code, told.Message
	} else {
		e.Message = strings.TrimSpace(string(data))
	}
	return e
}

func (a *api) create(ctx context.Context, c creation) (r remote, err error) {
	err = a.call(ctx, "create a sandbox", http.MethodPost, "sandboxes", nil, c, &r)
	if err == nil && r.ID == "" {
		err = errors.New("create a sandbox: the answer has no id")
	}
	return r, err
}

func (a *api) get(ctx context.Context, id string) (r remote, err error) {
	err = again(ctx, func() error {
		return a.call(ctx, "look at sandbox "+id, http.MethodGet, "sandboxes/"+url.PathEscape(id), nil, nil, &r)
	})
	return r, err
}

// list returns the sandboxes with a value of the metadata.
func (a *api) list(ctx context.Context, key, value string) (all []remote, err error) {
	const mostPages = 50
	for page := 1; page <= mostPages; page++ {
		var got struct {
			Items      []remote `json:"items"`
			Pagination struct {
				HasNextPage bool `json:"hasNextPage"`
			} `json:"pagination"`
		}
		query := url.Values{"metadata": {url.QueryEscape(key) + "=" + url.QueryEscape(value)}, "page": {strconv.Itoa(page)}, "pageSize": {"100"}}
		err := again(ctx, func() error { return a.call(ctx, "list sandboxes", http.MethodGet, "sandboxes", query, nil, &got) })
		if err != nil {
			return nil, err
		}
		for _, r := range got.Items {
			// A server that ignores the filter lists all.
			if r.Metadata[key] == value {
				all = append(all, r)
			}
		}
		if !got.Pagination.HasNextPage {
			return all, nil
		}
	}
	return nil, fmt.Errorf("list sandboxes: more than %d pages", mostPages)
}

// remove deletes a sandbox. A missing sandbox is no error.
func (a *api) remove(ctx context.Context, id string) error {
	err := again(ctx, func() error {
		return a.call(ctx, "delete sandbox "+id, http.MethodDelete, "sandboxes/"+url.PathEscape(id), nil, nil, nil)
	})
	if statusOf(err) == http.StatusNotFound {
		return nil
	}
	return err
}

// renew extends a sandbox's life until a time.
func (a *api) renew(ctx context.Context, id string, until time.Time) error {
	in := map[string]string{"expiresAt": until.UTC().Format(time.RFC3339)}
	return again(ctx, func() error {
		return a.call(ctx, "renew sandbox "+id, http.MethodPost, "sandboxes/"+url.PathEscape(id)+"/renew-expiration", nil, in, nil)
	})
}

// endpoint returns the address of a port of a sandbox.
func (a *api) endpoint(ctx context.Context, id string, number int, proxied bool) (to *port, err error) {
	var e endpoint
	query := url.Values{}
	if proxied {
		query.Set("use_server_proxy", "true")
	}
	err = again(ctx, func() error {
		return a.call(ctx, fmt.Sprintf("ask for port %d of sandbox %s", number, id), http.MethodGet, fmt.Sprintf("sandboxes/%s/endpoints/%d", url.PathEscape(id), number), query, nil, &e)
	})
	if err != nil {
		return nil, err
	}
	return newPort(a, e)
}

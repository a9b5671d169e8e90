package opensandbox

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// execdPort is the port of the server's own daemon in each sandbox.
const execdPort = 44772

const (
	// uploadPatience bounds the upload of this program.
	uploadPatience = 5 * time.Minute
	// mostEvent bounds one event of a stream.
	mostEvent = 1 << 20
)

// port is a port of a sandbox, as this process reaches it.
type port struct {
	http   *http.Client
	base   *url.URL
	header http.Header // required in each request
}

// newPort parses an endpoint. An endpoint without a scheme has the scheme of the lifecycle
// API.
func newPort(a *api, e endpoint) (*port, error) {
	text := e.Endpoint
	if !strings.Contains(text, "://") {
		text = a.base.Scheme + "://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("the server names the endpoint %q, which is no address of HTTP", e.Endpoint)
	}
	p := &port{http: a.http, base: u, header: http.Header{}}
	for k, v := range e.Headers {
		p.header.Set(k, v)
	}
	return p, nil
}

// request returns a request of the API of execd.
func (p *port) request(ctx context.Context, method, path string, query url.Values, body io.Reader) (*http.Request, error) {
	u := p.base.JoinPath(path)
	if query != nil {
		u.RawQuery = query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err == nil {
		req.Header = p.header.Clone()
	}
	return req, err
}

// ping reports whether execd answers.
func (p *port) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	req, err := p.request(ctx, http.MethodGet, "ping", nil, nil)
	if err != nil {
		return err
	}
	return answer(p.http, "reach the sandbox", req, nil)
}

// upload uploads an executable file.
func (p *port) upload(ctx context.Context, name string, from io.Reader) error {
	ctx, cancel := context.WithTimeout(ctx, uploadPatience)
	defer cancel()
	r, w := io.Pipe()
	form := multipart.NewWriter(w)
	go func() {
		err := writeUpload(form, name, from)
		w.CloseWithError(errors.Join(err, form.Close()))
	}()
	defer r.Close() // ends the goroutine, if the server has not
	req, err := p.request(ctx, http.MethodPost, "files/upload", nil, r)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", form.FormDataContentType())
	return answer(p.http, "upload "+name, req, nil)
}

func writeUpload(form *multipart.Writer, name string, from io.Reader) error {
	about, err := json.Marshal(struct {
		Path string `json:"path"`
		Mode int    `json:"mode"` // the octal digits as a decimal number
	}{name, 755})
	if err != nil {
		return err
	}
	for _, part := range []struct {
		name, kind string
		from       io.Reader
	}{{"metadata", "application/json", bytes.NewReader(about)}, {"file", "application/octet-stream", from}} {
		w, err := form.CreatePart(textproto.MIMEHeader{
			"Content-Disposition": {fmt.Sprintf("form-data; name=%q; filename=%q", part.name, part.name)}, "Content-Type": {part.kind},
		})
		if err != nil {
			return err
		}
		if _, err := io.Copy(w, part.from); err != nil {
			return err
		}
	}
	return nil
}

type (
	command struct {
		Command    string            `json:"command"`
		Background bool              `json:"background"`
		UID        *int              `json:"uid,omitempty"`
		GID        *int              `json:"gid,omitempty"`
		Envs       map[string]string `json:"envs,omitempty"`
	}
	// event is an event of the stream of a command.
	event struct {
		Type  string `json:"type"`
		Text  string `json:"text"`
		Error struct {
			Name  string `json:"ename"`
			Value string `json:"evalue"`
		} `json:"error"`
	}
	commandStatus struct {
		Running  bool   `json:"running"`
		ExitCode *int   `json:"exit_code"`
		Error    string `json:"error"`
	}
)

// run has execd's shell run a command and calls each with its events, until the command
// ends. A command in the background has then only started.
func (p *port) run(ctx context.Context, c command, each func(event)) error {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	req, err := p.request(ctx, http.MethodPost, "command", nil, bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	const op = "run a command in the sandbox"
	res, err := p.http.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		return failure(op, res)
	}
	if err := readEvents(res.Body, each); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// readEvents reads up to the event that ends a command. Empty lines separate events. The
// standard requires the prefix "data:" of their lines; execd omits it.
func readEvents(from io.Reader, each func(event)) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 4096), mostEvent)
	var data []byte
	for more := true; more; {
		more = lines.Scan()
		line := bytes.TrimRight(lines.Bytes(), "\r")
		if more && len(line) > 0 {
			if field, value, ok := bytes.Cut(line, []byte(":")); ok && !bytes.HasPrefix(line, []byte("{")) {
				if string(field) != "data" {
					continue // a comment, or an unused field
				}
				line = bytes.TrimPrefix(value, []byte(" "))
			}
			if data = append(data, line...); len(data) > mostEvent {
				return bufio.ErrTooLong
			}
			continue
		}
		if len(data) == 0 {
			continue
		}
		var e event
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("an event that is not JSON: %w", err)
		}
		data = data[:0]
		each(e)
		if e.Type == "error" {
			return fmt.Errorf("it failed: %s %s", e.Error.Name, e.Error.Value)
		}
		if e.Type == "execution_complete" {
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

// background starts a command and returns its id.
func (p *port) background(ctx context.Context, c command) (id string, err error) {
	c.Background = true
	err = p.run(ctx, c, func(e event) {
		if e.Type == "init" {
			id = e.Text
		}
	})
	// The command has started, even if the stream broke afterwards.
	if id != "" && (errors.Is(err, io.ErrUnexpectedEOF) || os.IsTimeout(err)) {
		err = nil
	}
	if err == nil && id == "" {
		err = errors.New("run a command in the sandbox: it got no id")
	}
	return id, err
}

// logs returns the output of a background command since a cursor, and the next cursor.
func (p *port) logs(ctx context.Context, id, cursor string) (text, next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	req, err := p.request(ctx, http.MethodGet, "command/"+url.PathEscape(id)+"/logs", url.Values{"cursor": {cursor}}, nil)
	if err != nil {
		return "", cursor, err
	}
	res, err := p.http.Do(req)
	if err != nil {
		return "", cursor, fmt.Errorf("read the output of a command: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		return "", cursor, failure("read the output of a command", res)
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, mostEvent))
	if next = res.Header.Get("EXECD-COMMANDS-TAIL-CURSOR"); next == "" {
		next = cursor
	}
	return string(data), next, err
}

// status returns the status of a background command.
func (p *port) status(ctx context.Context, id string) (s commandStatus, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	req, err := p.request(ctx, http.MethodGet, "command/status/"+url.PathEscape(id), nil, nil)
	if err != nil {
		return s, err
	}
	err = answer(p.http, "look at a command", req, &s)
	return s, err
}

// connect opens a WebSocket to the listener of the port.
func (p *port) connect(ctx context.Context) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	ws, res, err := websocket.Dial(ctx, p.base.String(), &websocket.DialOptions{HTTPClient: p.http, HTTPHeader: p.header.Clone()})
	if res != nil && res.Body != nil && err != nil {
		res.Body.Close()
	}
	return ws, err
}

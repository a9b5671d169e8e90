package scripted

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/llm"
)

// maxBody bounds a request's body in bytes.
const maxBody = 64 << 20

func (m *Model) routes() http.Handler {
	mux := http.NewServeMux()
	for _, root := range []string{"/v1", ""} {
		mux.HandleFunc("POST "+root+"/chat/completions", m.serveChat)
		mux.HandleFunc("POST "+root+"/embeddings", m.serveEmbeddings)
		mux.HandleFunc("GET "+root+"/models", m.serveModels)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, &llm.Error{Code: llm.CodeInvalidRequest, Status: 404, Message: fmt.Sprintf(
			"no %s %s here; there are POST /v1/chat/completions, POST /v1/embeddings and GET /v1/models", r.Method, llm.Clip(r.URL.Path, 100))})
	})
	return mux
}

// ServeHTTP implements the OpenAI protocol: POST /v1/chat/completions, streaming or
// not, POST /v1/embeddings, and GET /v1/models. It requires no key.
func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.mux.ServeHTTP(w, r) }

func (m *Model) serveModels(w http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		OwnedBy string `json:"owned_by"`
	}
	list := struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{Object: "list"}
	names := m.o.Models
	if len(names) == 0 {
		names = []string{DefaultModel}
	}
	for _, name := range names {
		list.Data = append(list.Data, model{ID: name, Object: "model", OwnedBy: "rath"})
	}
	writeJSON(w, http.StatusOK, list)
}

func (m *Model) serveChat(w http.ResponseWriter, hr *http.Request) {
	var chat chatRequest
	body, err := io.ReadAll(http.MaxBytesReader(w, hr.Body, maxBody))
	if err == nil {
		err = json.Unmarshal(body, &chat)
	}
	var r *llm.Request
	if err == nil {
		r, err = chat.request()
	}
	if err != nil {
		e := &llm.Error{Code: llm.CodeInvalidRequest, Message: err.Error()}
		if known, ok := errors.AsType[*llm.Error](err); ok {
			e.Message = known.Message
		}
		e.Status = http.StatusBadRequest
		writeError(w, e)
		return
	}
	if r.StepKey = hr.Header.Get(llm.StepHeader); len(r.StepKey) > llm.MaxNameLen {
		r.StepKey = r.StepKey[:llm.MaxNameLen]
	}
	r.Try, _ = strconv.Atoi(hr.Header.Get(llm.TryHeader)) // 0 is 1
	a, err := m.decide(newView(r), Entry{Via: "http", Stream: chat.Stream})
	if err != nil {
		e, ok := errors.AsType[*llm.Error](err)
		if !ok {
			e = &llm.Error{Code: llm.CodeUnavailable, Status: 500, Message: err.Error()}
		}
		writeError(w, e)
		return
	}
	ctx := hr.Context()
	if m.wait(ctx, a.Delay) != nil {
		return
	}
	switch {
	case a.err != nil:
		writeError(w, a.err)
	case a.Fault == faultHang:
		_ = m.hang(ctx, llm.CodeTimeout)
		panic(http.ErrAbortHandler)
	case a.Fault == faultDrop:
		panic(http.ErrAbortHandler)
	case a.Fault == faultHTML:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, "<!DOCTYPE html><html><head><title>Sign in</title></head><body>Please sign in.</body></html>\n")
	case chat.Stream:
		m.stream(w, hr, a, chat.StreamOptions != nil && chat.StreamOptions.IncludeUsage)
	default:
		m.unary(w, hr, a)
	}
}

// frame returns the parts that all chunks of an answer share. The id is derived from
// the request, so that equal requests have byte-identical answers.
func (a *answer) frame(object string) chatAnswer {
	id := "chatcmpl-scripted"
	if len(a.resp.Calls) > 0 {
		id += "-" + a.resp.Calls[0].ID
	}
	return chatAnswer{ID: id, Object: object, Model: a.resp.Model, Choices: []chatChoice{}}
}

// unary answers in one piece. Faults in the middle cut the JSON in two.
func (m *Model) unary(w http.ResponseWriter, hr *http.Request, a *answer) {
	f := a.frame("chat.completion")
	f.Choices = []chatChoice{{Message: wireMessage(&a.resp), FinishReason: &a.resp.Finish}}
	f.Usage = wireUsage(a.resp.Usage)
	switch a.Fault {
	case "":
		writeJSON(w, http.StatusOK, f)
		return
	case faultError:
		writeError(w, a.midError())
		return
	}
	data, err := json.Marshal(f)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data[:len(data)/2])
	m.breakOff(w, hr, a.Fault)
}

// stream answers with server-sent events, one per piece.
func (m *Model) stream(w http.ResponseWriter, hr *http.Request, a *answer, usage bool) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	rc := http.NewResponseController(w)
	send := func(f chatAnswer) bool {
		data, err := json.Marshal(f)
		if err == nil {
			_, err = fmt.Fprintf(w, "data: %s\n\n", data)
		}
		if err == nil && a.Gap > 0 {
			err = rc.Flush()
		}
		return err == nil
	}
	f := a.frame("chat.completion.chunk")
	f.Choices = []chatChoice{{Delta: &chatSpoken{Role: "assistant"}}}
	if !send(f) {
		return
	}
	ds := pieces(&a.resp)
	if a.Fault != "" {
		ds = ds[:len(ds)/2]
	}
	for i, d := range ds {
		if i > 0 && m.wait(hr.Context(), a.Gap) != nil {
			return
		}
		f.Choices = []chatChoice{{Delta: wireDelta(d)}}
		if !send(f) {
			return
		}
	}
	switch a.Fault {
	case "":
	case faultGarbage:
		fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\n\ndata: [DONE]\n\n")
		return
	case faultError:
		data, err := json.Marshal(wireError(a.midError()))
		if err == nil {
			fmt.Fprintf(w, "data: %s\n\n", data)
		}
		return
	default:
		m.breakOff(w, hr, a.Fault)
		return
	}
	f.Choices = []chatChoice{{Delta: &chatSpoken{}, FinishReason: &a.resp.Finish}}
	if !send(f) {
		return
	}
	if usage {
		f.Choices, f.Usage = []chatChoice{}, wireUsage(a.resp.Usage)
		if !send(f) {
			return
		}
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// breakOff ends an answer in the middle, in the form of the fault.
func (m *Model) breakOff(w http.ResponseWriter, hr *http.Request, fault string) {
	if http.NewResponseController(w).Flush() != nil {
		return
	}
	switch fault {
	case faultStall:
		_ = m.hang(hr.Context(), llm.CodeIdleTimeout)
		panic(http.ErrAbortHandler)
	case faultAbort:
		panic(http.ErrAbortHandler)
	}
}

func writeError(w http.ResponseWriter, e *llm.Error) {
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
		if e.RetryAfter%time.Second != 0 {
			w.Header().Set("Retry-After-Ms", strconv.FormatInt(e.RetryAfter.Milliseconds(), 10))
		}
	}
	status := e.Status
	if status == 0 {
		status = statusOf(e.Code)
	}
	writeJSON(w, status, wireError(e))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, b.String())
}

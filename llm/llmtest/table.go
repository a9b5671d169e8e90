package llmtest

import (
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// table has the answers of real servers and proxies.
func table(w Wire) []Row {
	return slices.Concat(whole(w), characters(w), calls(w), broken(w), other(w), reported(w), refused())
}

// stream is a complete streamed answer.
func (w Wire) stream(parts ...Part) string { return Data(append(w.Events(parts...), w.Last)...) }

// open is an unfinished streamed answer.
func (w Wire) open(parts ...Part) string { return Data(w.Events(parts...)...) }

var stop = Finish(llm.FinishStop)

var hello = Outcome{Text: "Hello", Finish: llm.FinishStop}

func counted(u session.Usage) Part { return Part{Finish: llm.FinishStop, Usage: u} }

func whole(w Wire) []Row {
	plain := w.stream(Say("Hel"), Say("lo"), stop)
	parts := w.Events(Say("Hel"), Say("lo"), stop)
	used := session.Usage{Input: 9, Output: 2, CacheRead: 6, CacheWrite: 1}
	return []Row{
		{"plain", []string{SSE, w.stream(Say("Hello"), Say(" you"), stop)}, Outcome{Text: "Hello you", Finish: "stop"}},
		{"chunked", []string{Head(200, "text/event-stream", chunkedField), chunked(plain[:len(plain)/2]), chunked(plain[len(plain)/2:]), "0\r\n\r\n"}, hello},
		{"CRLF", []string{SSE, strings.ReplaceAll(plain, "\n", "\r\n")}, hello},
		{"CR alone", []string{SSE, strings.ReplaceAll(plain, "\n", "\r")}, hello},
		{"byte order mark", []string{SSE, "\uFEFF" + plain}, hello},
		{"no space after the colon", []string{SSE, strings.ReplaceAll(plain, "data: ", "data:")}, hello},
		{"byte by byte", append([]string{SSE}, drip(w.stream(Say("Grüße 🙂"), stop))...), Outcome{Text: "Grüße 🙂", Finish: "stop"}},
		{"no last event", []string{SSE, w.open(Say("Hello"), stop)}, hello},
		{"last line without an end", []string{SSE, strings.TrimRight(Data(parts...), "\n")}, hello},
		{"no blank lines", []string{SSE, strings.ReplaceAll(plain, "\n\n", "\n")}, hello},
		{"several data lines", []string{SSE, strings.ReplaceAll(plain, `,"`, ",\ndata: \"")}, hello},
		{"comments and fields", []string{SSE, strings.Repeat(": ping\n\n", 1000) + "id: 1\nevent: message\nretry: 5\n" + plain}, hello},
		{"breaks after the finish", []string{Head(200, "text/event-stream", chunkedField), chunked(w.open(Say("Hello"), stop))}, hello},
		{"stays open after the finish", []string{SSE, w.open(Say("Hello"), stop), Pause}, hello},
		{"pings after the finish", []string{SSE, w.open(Say("Hello"), stop), Pings}, hello},
		{"tokens", []string{SSE, w.stream(Say("Hello"), counted(used))}, Outcome{Text: "Hello", Finish: "stop", Usage: used}},
		{"a negative count", []string{SSE, w.stream(Say("Hello"), counted(session.Usage{Input: -9, Output: 2, CacheRead: 1e11}))}, hello},
		{"tokens beyond all sums", []string{SSE, w.stream(Say("Hello"), counted(session.Usage{Input: 1 << 62, Output: 2}))}, hello},
		{"a document instead of a stream", []string{Head(200, document), w.Document(Say("Hello <b>"), Call(0, "a", "f", "{}"), Part{Finish: llm.FinishTools, Usage: used})}, Outcome{Text: "Hello <b>", Calls: []session.ToolCall{{ID: "a", Name: "f", Args: "{}"}}, Finish: "tool_calls", Usage: used}},
		{"a stream labelled as a document", []string{Head(200, document), "\n" + plain}, hello},
		{"length", []string{SSE, w.stream(Say("Hello"), Finish(llm.FinishLength))}, Outcome{Text: "Hello", Finish: "length"}},
		{"filter", []string{SSE, w.stream(Say("Hello"), Finish(llm.FinishFilter))}, Outcome{Text: "Hello", Finish: "content_filter"}},
		{"empty", []string{SSE, w.stream(stop)}, Outcome{Finish: "stop"}},
	}
}

func characters(w Wire) []Row {
	said := func(name, text string, parts ...Part) Row {
		return Row{name, []string{SSE, w.stream(append(parts, stop)...)}, Outcome{Text: text, Finish: "stop"}}
	}
	thought := w.stream(Think(`Hm \ud83d`), Think(`\ude42`), Say("Hello"), stop)
	return []Row{
		said("bytes split between deltas", "a🙂b", Say("a\xf0\x9f"), Say("\x99"), Say("\x82b")),
		said("surrogates split between deltas", "a🙂b🙂", Say(`a\ud83d`), Say(`\ude42b\ud83d\ude42`)),
		said("half a character at the end", "a\uFFFD", Say("a\xf0\x9f")),
		said("half a pair at the end", "a\uFFFDb\uFFFD", Say(`a\ud83d`), Say(`b\ud83d`)),
		said("invalid bytes inside", "a\uFFFDb\uFFFDc", Say("a\xffb\xf0\x9fc")),
		{"a thought", []string{SSE, thought}, Outcome{Reasoning: "Hm 🙂", Text: "Hello", Finish: "stop"}},
	}
}

func calls(w Wire) []Row {
	of := func(c ...session.ToolCall) Outcome { return Outcome{Calls: c, Finish: llm.FinishTools} }
	end := Finish(llm.FinishTools)
	return []Row{
		{"a call in pieces", []string{SSE, w.stream(Say("I look."), Call(0, "a", "f", ""), Call(0, "", "", `{\"x\":`), Call(0, "", "", `\"🙂\"}`), end)}, Outcome{Text: "I look.", Calls: []session.ToolCall{{ID: "a", Name: "f", Args: `{"x":"🙂"}`}}, Finish: "tool_calls"}},
		{"calls interleaved", []string{SSE, w.stream(Call(0, "a", "f", `{\"x\":`), Call(1, "b", "g", ""), Call(1, "", "", "{}"), Call(0, "", "", "1}"), end)}, of(session.ToolCall{ID: "a", Name: "f", Args: `{"x":1}`}, session.ToolCall{ID: "b", Name: "g", Args: "{}"})},
		{"arguments split within a character", []string{SSE, w.stream(Call(0, "a", "f", `\"\ud83d`), Call(0, "", "", `\ude42\"`), end)}, of(session.ToolCall{ID: "a", Name: "f", Args: `"🙂"`})},
		{"one id twice", []string{SSE, w.stream(Call(0, "a", "f", "1"), Call(1, "a", "g", "2"), end)}, of(session.ToolCall{ID: "a", Name: "f", Args: "1"}, session.ToolCall{ID: "call_1", Name: "g", Args: "2"})},
		{"calls cut at the limit", []string{SSE, w.stream(Call(0, "a", "f", `{\"x`), Finish(llm.FinishLength))}, Outcome{Calls: []session.ToolCall{{ID: "a", Name: "f", Args: `{"x`}}, Finish: "length"}},
	}
}

// broken are incomplete answers.
func broken(w Wire) []Row {
	open, doc := w.open(Say("Hello")), w.Document(Say("Hello"), stop)
	return []Row{
		{"ends without a finish", []string{SSE, open}, Outcome{Code: llm.CodeTruncated, Says: "without a finish reason after 5 bytes"}},
		{"the last event without a finish", []string{SSE, open + Data(w.Last)}, Outcome{Code: llm.CodeTruncated, Says: "without a finish reason"}},
		{"ends inside an event", []string{SSE, open + `data: {"choices":[{"delta":{"content":"x`}, Outcome{Code: llm.CodeTruncated, Says: "broke off"}},
		{"chunked and aborted", []string{Head(200, "text/event-stream", chunkedField), chunked(open)}, Outcome{Code: llm.CodeTruncated, Says: "broke off"}},
		{"shorter than announced", []string{Head(200, document, "Content-Length: 9999\r\n"), doc[:20]}, Outcome{Code: llm.CodeTruncated}},
		{"half a document", []string{Head(200, document), doc[:len(doc)/2]}, Outcome{Code: llm.CodeTruncated, Says: "stops after"}},
		{"nothing", []string{SSE}, Outcome{Code: llm.CodeTruncated, Says: "empty"}},
		{"only comments", []string{SSE, ": ping\n\n: ping\n\n"}, Outcome{Code: llm.CodeTruncated}},
		{"stalls", []string{SSE, open, Pause}, Outcome{Code: llm.CodeIdleTimeout, Says: "stalled for 200ms"}},
		{"begins with nothing and stalls", []string{SSE, w.open(), Pause}, Outcome{Code: llm.CodeTimeout, Says: "no first token within 1s"}},
		{"never answers", []string{Pause}, Outcome{Code: llm.CodeTimeout, Says: "no first token within 1s"}},
		{"closes at once", nil, Outcome{Code: llm.CodeUnavailable, Says: "cannot reach http://127.0.0.1"}},
	}
}

// other are answers that are not completions.
func other(w Wire) []Row {
	long := make([]Part, 5)
	for i := range long {
		long[i] = Say(strings.Repeat("x", 60<<10))
	}
	return []Row{
		{"an event that is not JSON", []string{SSE, w.open(Say("Hello")) + Data(`{"choices":[{"delta":{"content":`) + w.open(stop)}, Outcome{Code: llm.CodeMalformed}},
		{"an event of another type", []string{SSE, Data(`[1]`)}, Outcome{Code: llm.CodeMalformed}},
		{"a login page", []string{Head(200, "text/html"), "<html><head><title>Sign in</title></head>" + CanaryPrompt}, Outcome{Code: llm.CodeMalformed, Says: `a web page titled "Sign in"; is the base URL http://127`}},
		{"a page that says it is a stream", []string{SSE, "\n<!DOCTYPE html>"}, Outcome{Code: llm.CodeMalformed, Says: "a web page of 15 bytes"}},
		{"a document that is not JSON", []string{Head(200, document), `{'choices': []}`}, Outcome{Code: llm.CodeMalformed, Says: "not JSON"}},
		{"a huge event", []string{SSE, w.stream(Say(strings.Repeat("x", 70<<10)), stop)}, Outcome{Code: llm.CodeMalformed, Says: "limit 65536 bytes"}},
		{"a huge document", []string{Head(200, document), `{"x":"` + strings.Repeat("x", 300<<10) + `"}`}, Outcome{Code: llm.CodeMalformed, Says: "larger than 262144 bytes"}},
		{"a huge answer", []string{SSE, w.open(long...)}, Outcome{Code: llm.CodeMalformed, Says: "larger than 262144 bytes"}},
	}
}

// reported are errors that servers, and proxies of any protocol, send in a stream.
func reported(w Wire) []Row {
	open := w.open(Say("Hello"))
	return []Row{
		{"error frame", []string{SSE, open + Data(`{"error":{"message":"engine died","type":"server_error","code":500}}`)}, Outcome{Code: llm.CodeUnavailable, Says: "engine died"}},
		{"error frame with a space", []string{SSE, Data(`{ "error" : {"message":"slow down","type":"rate_limit_error"}}`)}, Outcome{Code: llm.CodeRateLimited, Says: "slow down"}},
		{"error text", []string{SSE, Data(`{"error":"overloaded"}`)}, Outcome{Code: llm.CodeOverloaded}},
		{"object error", []string{SSE, Data(`{"object":"error","message":"the maximum context length is 10","type":"BadRequestError","code":400}`)}, Outcome{Code: llm.CodeContextLength}},
		{"type error", []string{SSE, Data(`{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`)}, Outcome{Code: llm.CodeOverloaded, Says: "busy"}},
		{"type error without an object", []string{SSE, Data(`{"type":"error","code":"rate_limit_exceeded","message":"slow down"}`)}, Outcome{Code: llm.CodeRateLimited, Says: "slow down"}},
		{"event: error", []string{SSE, open + "event: error\ndata: worker lost\n\n"}, Outcome{Code: llm.CodeUnavailable, Says: "worker lost"}},
		{"a bare error line", []string{SSE, `{"error":{"message":"bad key ` + CanaryKey + `","code":"invalid_api_key"}}` + "\n"}, Outcome{Code: llm.CodeAuth, Says: "[redacted]"}},
		{"an error after the finish", []string{SSE, w.open(Say("Hello"), stop) + Data(`{"error":{"message":"late"}}`)}, Outcome{Code: llm.CodeUnavailable, Says: "late"}},
		{"200 with an error", []string{Head(200, document), `{"error":{"message":"no such model","code":"model_not_found"}}`}, Outcome{Code: llm.CodeModelNotFound, Says: "set the provider's model"}},
	}
}

// refused are answers with a failing status.
func refused() []Row {
	return []Row{
		{"200 with a list of errors", []string{Head(200, document), `[{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}]`}, Outcome{Code: llm.CodeOverloaded}},
		{"429", []string{Head(429, document, "Retry-After: 7\r\n"), `{"error":{"message":"slow down"}}`}, Outcome{Code: llm.CodeRateLimited, Says: "HTTP 429: slow down", RetryAfter: 7 * time.Second}},
		{"429 without credit", []string{Head(429, document), `{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}`}, Outcome{Code: llm.CodeQuota}},
		{"500 page with secrets", []string{Head(500, "text/html"), "<html><title>Oops</title>Authorization: Bearer " + CanaryKey + " " + CanaryPrompt}, Outcome{Code: llm.CodeUnavailable, Says: `HTTP 500: a web page titled "Oops"`}},
		{"500 dump with secrets", []string{Head(500, "application/octet-stream"), CanaryKey + CanaryPrompt}, Outcome{Code: llm.CodeUnavailable, Says: "bytes that are not JSON"}},
		{"503", []string{Head(503, "text/plain"), "no healthy upstream"}, Outcome{Code: llm.CodeOverloaded, Says: "HTTP 503: no healthy upstream"}},
		{"401", []string{Head(401, document), `{"error":{"message":"Incorrect API key provided: ` + CanaryKey + `"}}`}, Outcome{Code: llm.CodeAuth, Says: "check the key in MY_KEY"}},
		{"404 model", []string{Head(404, document), `{"error":{"message":"The model 'm1' does not exist"}}`}, Outcome{Code: llm.CodeModelNotFound}},
		{"404 page", []string{Head(404, "text/plain"), "404 page not found"}, Outcome{Code: llm.CodeInvalidRequest, Says: "usually ending in /v1"}},
		{"400 context", []string{Head(400, document), `{"error":{"message":"too long","code":"context_length_exceeded"}}`}, Outcome{Code: llm.CodeContextLength}},
		{"400 content", []string{Head(400, document), `{"error":{"message":"no","code":"content_filter"}}`}, Outcome{Code: llm.CodeRefused}},
		{"422 detail", []string{Head(422, document), `{"detail":[{"loc":["body"],"msg":"field required"}]}`}, Outcome{Code: llm.CodeInvalidRequest, Says: "field required"}},
		{"400 long", []string{Head(400, document), `{"error":{"message":"` + strings.Repeat("ä", 4000) + `"}}`}, Outcome{Code: llm.CodeInvalidRequest, Says: "…"}},
		{"307", []string{Head(307, "text/plain", "Location: https://other.example/v1/chat/completions?key="+CanaryKey+"\r\n")}, Outcome{Code: llm.CodeInvalidRequest, Says: "redirects to https://other.example; set the base URL"}},
		{"529", []string{Head(529, document), `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`}, Outcome{Code: llm.CodeOverloaded}},
		{"400 prompt", []string{Head(400, document), `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}`}, Outcome{Code: llm.CodeContextLength}},
		{"400 credit", []string{Head(400, document), `{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the API"}}`}, Outcome{Code: llm.CodeQuota}},
		{"401 typed", []string{Head(401, document), `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`}, Outcome{Code: llm.CodeAuth, Says: "check the key in MY_KEY"}},
		{"404 typed", []string{Head(404, document), `{"type":"error","error":{"type":"not_found_error","message":"model: claude-none"}}`}, Outcome{Code: llm.CodeModelNotFound}},
		{"413", []string{Head(413, document), `{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}`}, Outcome{Code: llm.CodeContextLength}},
	}
}

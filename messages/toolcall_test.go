package messages_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func TestDecodeToolAnswer(t *testing.T) {
	for _, tt := range []struct {
		data, body string
		failed     bool
		want       error
		text       string
	}{
		{data: `{"body":{"a":1.50}}`, body: `{"a":1.50}`},
		{data: `{"body":"no","is_error":true}`, body: `"no"`, failed: true},
		{data: `{}`, body: `null`},
		{data: `{"body":null}`, body: `null`},
		{data: ``, want: run.ErrMalformed, text: "the body is empty"},
		{data: `sunny`, want: run.ErrMalformed},
		{data: `[1]`, want: run.ErrMalformed, text: "not a JSON object"},
		{data: `{"result":1}`, want: run.ErrMalformed, text: "the known ones are body, is_error"},
		{data: `{"body":1,"body":2}`, want: run.ErrMalformed, text: "it is there twice"},
		{data: `{"body":1} {}`, want: run.ErrMalformed},
		{data: `{"is_error":"yes"}`, want: run.ErrMalformed, text: "is_error"},
		{data: "{\"body\":\"\xff\"}", want: run.ErrMalformed, text: "UTF-8"},
		{data: `{"body":"` + strings.Repeat("x", messages.MaxReply) + `"}`, want: session.ErrTooLarge},
	} {
		a, err := wire.DecodeToolAnswer([]byte(tt.data))
		name := tt.data[:min(len(tt.data), 40)]
		if !errors.Is(err, tt.want) || tt.want != nil && !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %v, want %v with %q", name, err, tt.want, tt.text)
		}
		if string(a.Body) != tt.body || a.IsError != tt.failed {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

func TestParseToolSubject(t *testing.T) {
	subject := messages.ToolControlSubject("acme", "ana", "weather", messages.VerbAnnounce)
	c, ok := wire.ParseControlSubject(subject)
	if want := (wire.Controlled{Tenant: "acme", User: "ana", ID: "weather", Verb: messages.VerbToolAnnounce}); !ok || subject != "rath.ctl.acme.ana.tool.weather.announce" || c != want {
		t.Errorf("%s is %+v %t", subject, c, ok)
	}
}

func TestDecodeInput(t *testing.T) {
	type item struct {
		Name string `json:"name"`
	}
	var in struct {
		Items []item `json:"items"`
	}
	if err := messages.DecodeInput("w", []byte(`{"items":[{"name":"a"},{"name":"b"}]}`), &in); err != nil || len(in.Items) != 2 || in.Items[1].Name != "b" {
		t.Errorf("%+v, %v", in, err)
	}
	for data, want := range map[string]string{
		`{"items":[{"name":"a"},{"nam":"b"}]}`: `w input: field items[1]."nam": unknown: did you mean "name"?`,
		`{"items":[{"name":1}]}`:               `w input: field items[0].name: 1 is not a string`,
		`{"items":["a"]}`:                      `w input: field items[0]: not a JSON object`,
		`{"items":"a"}`:                        `w input: field items: "a" is no list`,
	} {
		if err := messages.DecodeInput("w", []byte(data), &in); !errors.Is(err, run.ErrMalformed) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", data, err, want)
		}
	}
}

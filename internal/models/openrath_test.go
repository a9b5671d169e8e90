package models

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestFromOpenRath: the list has the contents of the configuration, except the keys.
func TestFromOpenRath(t *testing.T) {
	list, remarks, err := FromOpenRath("config.json", []byte(`{
  "version": 1, "later": {"unknown": true},
  "llm": {
    "default_provider": "work", "embedding_provider": "vectors", "vlm_provider": "eyes",
    "providers": {
      "work": {"provider_kind": "openai", "model": "gpt-5.5", "api_key": "sk-one", "temperature": 0.2, "max_tokens": 8000},
      "vectors": {"provider_kind": "openai", "model": "text-embedding-3-small", "api_key": "sk-one", "max_tokens": 10},
      "eyes": {"provider_kind": "anthropic", "model": "claude-sonnet-4-5"},
      "my-own": {"provider_kind": "openai", "model": "qwen", "base_url": "http://10.0.0.7:8000/v1", "api_key": "sk-two"},
      "open": {"provider_kind": "openai", "model": "qwen", "base_url": "http://10.0.0.8:8000/v1"}
    }
  },
  "memory": {"providers": {}}
}`))
	must.Do(t, err)
	want := `default: work
models:
    eyes:
        kind: anthropic
        key: env:ANTHROPIC_API_KEY
        id: claude-sonnet-4-5
        can: [tools, images]
    my-own:
        kind: openai
        url: http://10.0.0.7:8000/v1
        key: env:MY_OWN_API_KEY
        id: qwen
    open:
        kind: openai
        url: http://10.0.0.8:8000/v1
        id: qwen
    vectors:
        kind: openai
        key: env:OPENAI_API_KEY
        id: text-embedding-3-small
        can: [embeddings]
    work:
        kind: openai
        key: env:OPENAI_API_KEY
        id: gpt-5.5
        output: 8000
`
	if diff := cmp.Diff(want, string(list)); diff != "" {
		t.Errorf("the list (-want +got):\n%s", diff)
	}
	told := strings.Join(remarks, "\n")
	wantTold := `my-own: its key is not taken over; export MY_OWN_API_KEY
vectors: its key is not taken over; export OPENAI_API_KEY
work: its key is not taken over; export OPENAI_API_KEY
work: temperature 0.2 is none of a list; set it in the agent's llm.Provider`
	if diff := cmp.Diff(wantTold, told); diff != "" {
		t.Errorf("the remarks (-want +got):\n%s", diff)
	}
	if strings.Contains(string(list)+told, "sk-") {
		t.Error("a key is in what comes out")
	}
}

// TestTwoKeys: providers of one kind with different keys name different variables.
func TestTwoKeys(t *testing.T) {
	list, _, err := FromOpenRath("config.json", []byte(`{"llm": {"providers": {
		"a": {"provider_kind": "openai", "model": "m", "api_key": "sk-one"},
		"b": {"provider_kind": "openai", "model": "m", "api_key": "sk-two"}}}}`))
	if err != nil || !strings.Contains(string(list), "env:OPENAI_API_KEY") || !strings.Contains(string(list), "env:B_API_KEY") {
		t.Errorf("%s%v", list, err)
	}
}

func TestFromOpenRathRefuses(t *testing.T) {
	for data, want := range map[string]string{
		"":                            "config.json:1:0: unexpected end",
		"{\n  \"llm\": x":             "config.json:2:10: invalid character",
		`{"llm": {"providers": [1]}}`: "cannot unmarshal array",
		`{"version": 2, "llm": {"providers": {}}}`: "has version 2",
		`{"llm": {}}`:                         "no llm.providers",
		`{"llm": {"providers": {"a": null}}}`: "a is null",
		`{"llm": {"providers": {"a": {"provider_kind": "litellm", "model": "m"}}}}`:                                      `provider_kind "litellm"; want openai or anthropic`,
		`{"llm": {"providers": {"a": {"provider_kind": "openai"}}}}`:                                                     "a: it has no model",
		`{"llm": {"default_provider": "b", "providers": {"a": {"provider_kind": "openai"}}}}`:                            `default_provider is "b", which is not among`,
		`{"llm": {"providers": {"a": {"provider_kind": "openai", "model": "m", "base_url": "https://me:secret@x/v1"}}}}`: "holds a password",
		`{"llm": {"providers": {"a": {"provider_kind": "openai", "model": "m", "max_tokens": -1}}}}`:                     "max_tokens -1",
		`{"llm": {"providers": {"a b": {"provider_kind": "openai", "model": "m"}}}}`:                                     `name "a b"`,
		`{"llm": {"providers": {"a": {"provider_kind": "openai", "model": "m", "base_url": "ftp://x"}}}}`:                "config.json",
		strings.Repeat(" ", maxOpenRath+1):                                                                               "more than",
	} {
		list, _, err := FromOpenRath("config.json", []byte(data))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.120s: %v, want %q\n%s", data, err, want, list)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error tells a secret: %v", err)
		}
	}
}

// TestFromOpenRathTellsAll: all mistakes of a configuration are reported, in a fixed
// order.
func TestFromOpenRathTellsAll(t *testing.T) {
	const config = `{"llm":{"default_provider":"a","embedding_provider":"b","vlm_provider":"c","providers":{
		"z":{"provider_kind":"litellm","model":"m"},"y":null,"x":{"provider_kind":"openai"},"ok":{"provider_kind":"openai","model":"m"}}}}`
	want := `models: c.json: llm.default_provider is "a", which is not among llm.providers; correct the name
models: c.json: llm.embedding_provider is "b", which is not among llm.providers; correct the name
models: c.json: llm.vlm_provider is "c", which is not among llm.providers; correct the name
models: c.json: llm.providers.x: it has no model; name one
models: c.json: llm.providers.y is null; remove it
models: c.json: llm.providers.z: provider_kind "litellm"; want openai or anthropic`
	for range 20 {
		if _, _, err := FromOpenRath("c.json", []byte(config)); err == nil || err.Error() != want {
			t.Fatalf("%v", err)
		}
	}
}

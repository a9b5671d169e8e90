package models

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

const good = `default: fast
retries: {attempts: 6, pause: 250ms, within: 10m}
models:
  fast:
    url: https://api.example.com/v1
    key: env:EXAMPLE_KEY
    id: example-mini
    context: 400_000
    output: 8000
    can: [tools, images, developer]
    prices: {date: 2026-11-01, input: 0.25, cached_input: 0.025, cache_write: 0.3125, output: 2}
    fallbacks: [slow, own]
    limits: {requests: 500, tokens: 200_000, concurrency: 8}
    schema_omit: [additionalProperties, $schema]
    retries: {attempts: 2}
    timeouts: {connect: 5s, first_token: 20m, silence: 4m, whole: 2h}
    failures:
      context_length: {words: [zu lang], status: [400]}
      rate_limited:
        - {code: [E42]}
        - {regex: ['^worker \d+']}
  slow:
    key: file:secrets/slow
    prices: {date: 2026-11-01, input: 3, output: 15}
  own: {url: "http://10.0.0.7:8000/v1", free: true, can: []}
  router: {states_cost: true}
  gpt-5.4-mini: {prices: public}
keys:
  file:secrets/slow: {limits: {requests: 60}}
`

func TestParse(t *testing.T) {
	l, err := Parse("dir/m.yaml", []byte(good))
	must.Do(t, err)
	fast := l.Lookup("fast")
	if l.Default != "fast" || len(l.All()) != 5 || fast.ID != "example-mini" || fast.Context != 400_000 || fast.Cost != Priced || fast.Line != 4 {
		t.Errorf("%+v", fast)
	}
	if want := (Prices{"2026-11-01", 250_000, 25_000, 312_500, 2_000_000}); *fast.Prices != want {
		t.Errorf("prices %+v, want %+v", *fast.Prices, want)
	}
	if p := l.Lookup("slow").Prices; p.CachedInput != 3_000_000 || p.CacheWrite != 3_000_000 {
		t.Errorf("prices that are left out are those of the input: %+v", p)
	}
	if p := l.Lookup("gpt-5.4-mini").Prices; p == nil || p.Input != 750_000 || p.Date == "" {
		t.Errorf("public prices: %+v", p)
	}
	if k, ok := l.KeyLimit(l.Lookup("slow")); !ok || k != (KeyLimit{"file:secrets/slow", Limit{Requests: 60}}) {
		t.Errorf("the limit of a key is %+v, %v", k, ok)
	}
	if _, ok := l.KeyLimit(fast); ok || fast.Limit != (Limit{500, 200_000, 8}) {
		t.Errorf("the limit of a model is %+v", fast.Limit)
	}
	if m := l.Lookup("router"); m.Cost != Stated || m.ID != "router" {
		t.Errorf("%+v", m)
	}
	chain, err := l.Chain("")
	if err != nil || len(chain) != 3 || chain[2].Name != "own" {
		t.Errorf("%v, %v", chain, err)
	}
	if _, err := l.Chain("fsat"); !errors.Is(err, llm.CodeModelNotFound) || !strings.Contains(err.Error(), "fast, slow, own, router") {
		t.Errorf("%v", err)
	}
	if slow := l.Lookup("slow"); fast.Retries != (Retries{2, 250 * time.Millisecond, 10 * time.Minute}) || slow.Retries != (Retries{6, 250 * time.Millisecond, 10 * time.Minute}) {
		t.Errorf("retries %+v, %+v", fast.Retries, slow.Retries)
	}
	if want := (llm.Timeouts{Connect: 5 * time.Second, FirstToken: 20 * time.Minute, Silence: 4 * time.Minute, Whole: 2 * time.Hour}); fast.Timeouts != want || len(fast.Failures) != 3 || fast.Failures[0].Words[0] != "zu lang" || fast.Failures[0].Status[0] != 400 || fast.Failures[2].Code != llm.CodeRateLimited {
		t.Errorf("timeouts %+v, failures %+v", fast.Timeouts, fast.Failures)
	}
	p := fast.Provider(llm.Provider{Model: "fast", Temperature: new(0.5)})
	if p.Model != "example-mini" || p.KeyRef != "env:EXAMPLE_KEY" || p.SystemRole != "developer" || p.MaxTokens != 8000 || len(p.SchemaOmit) != 2 || p.Timeouts != fast.Timeouts || len(p.Failures) != 3 || *p.Temperature != 0.5 || p.Validate() != nil {
		t.Errorf("%+v, %v", p, p.Validate())
	}
}

// TestReplicas: a model may have a pool of servers.
func TestReplicas(t *testing.T) {
	l := must.Get(Parse("m.yaml", []byte("models:\n  a: {url: [http://h1/v1, http://h2/v1], key: env:K}\n  b: {url: http://h1/v1}\n")))(t)
	all := l.Lookup("a").Replicas()
	if len(all) != 2 || all[1].URL != "http://h2/v1" || all[1].Key != "env:K" || l.Lookup("a").URL != "http://h1/v1" || len(l.Lookup("b").Replicas()) != 1 {
		t.Errorf("%+v", all)
	}
}

// TestParseEmbeddings: an embedding model has a price without output, and requests the
// dimensions of its entry.
func TestParseEmbeddings(t *testing.T) {
	l := must.Get(Parse("m.yaml", []byte(`models:
  v: {can: [embeddings], dimensions: 256, prices: {date: 2026-11-01, input: 0.02}}
  text-embedding-3-small: {can: [embeddings], prices: public}
`)))(t)
	v := l.Lookup("v")
	p := v.Provider(llm.Provider{})
	if !v.Embeds() || v.Prices.Cost(session.Usage{Input: 1_000_001}) != 20_001 || string(p.Extra) != `{"dimensions":256}` || p.Validate() != nil {
		t.Errorf("%+v, %+v", v, p)
	}
	if own := l.Lookup("text-embedding-3-small"); own.Provider(llm.Provider{}).Extra != nil || own.Prices.Input != 20_000 {
		t.Errorf("%+v", own)
	}
}

// TestThinking: an entry requests thoughts in the form of its protocol, unless the
// provider requests them itself.
func TestThinking(t *testing.T) {
	for entry, want := range map[string]string{
		"{}":                               "",
		"{thinking: high}":                 "high",
		"{thinking: {effort: low}}":        "low",
		"{thinking: {extra: {x: {y: 1}}}}": ` {"x":{"y":1}}`,
		"{kind: openai-responses, thinking: high}":                 "high",
		"{kind: anthropic, thinking: high}":                        `high {"thinking":{"type":"adaptive"}}`,
		"{kind: anthropic, thinking: {budget: 4_000}}":             ` {"thinking":{"budget_tokens":4000,"type":"enabled"}}`,
		"{kind: anthropic, thinking: {budget: 4000, effort: low}}": `low {"thinking":{"budget_tokens":4000,"type":"enabled"}}`,
	} {
		l := must.Get(Parse("m.yaml", []byte("models:\n  a: "+entry+"\n")))(t)
		p := l.Lookup("a").Provider(llm.Provider{})
		if got := strings.TrimSuffix(p.ReasoningEffort+" "+string(p.Extra), " "); got != want || p.Validate() != nil {
			t.Errorf("%s asks with %q, want %q", entry, got, want)
		}
		own := llm.Provider{ReasoningEffort: "max", Extra: []byte(`{"thinking":null,"x":2}`)}
		if p := l.Lookup("a").Provider(own); p.ReasoningEffort != "max" || string(p.Extra) != `{"thinking":null,"x":2}` {
			t.Errorf("%s: the provider's own settings became %q and %s", entry, p.ReasoningEffort, p.Extra)
		}
	}
}

// TestVectorsOfModels: the name under which vectors are stored changes with the entry,
// with the id at the server and with the dimensions, so that those of two models are
// never compared.
func TestVectorsOfModels(t *testing.T) {
	seen := map[string]string{}
	for _, entry := range []string{
		"v: {can: [embeddings]}", "v: {can: [embeddings], id: small}", "v: {can: [embeddings], id: large}", "v: {can: [embeddings], id: large, dimensions: 256}",
		"v: {can: [embeddings], id: large, dimensions: 512}", "w: {can: [embeddings], id: large, dimensions: 512}",
	} {
		l := must.Get(Parse("m.yaml", []byte("models:\n  "+entry+"\n")))(t)
		name := l.All()[0].Vectors()
		if other, again := seen[name]; again {
			t.Errorf("the vectors of %s and of %s have one name, %q", other, entry, name)
		}
		seen[name] = entry
	}
}

// TestParseRefuses: each mistake has the line and a remedy, and no key is repeated.
func TestParseRefuses(t *testing.T) {
	const head = "models:\n  a:\n    "
	for text, want := range map[string]string{
		"modles: {}":                                           `m.yaml:1: the list: unknown field "modles"; the fields are default, keys, memory, models, retries`,
		"models: {}":                                           "m.yaml:1: the list has no models",
		"retries: {attempts: 0}":                               `m.yaml:1: the list: retries: attempts: "0": want a whole number of requests for an answer, 1 to 20`,
		head + "retries: {}":                                   "m.yaml:3: model a: retries: want attempts, pause or within",
		head + "retries: {try: 3}":                             `m.yaml:3: model a: retries: unknown field "try"; the fields are attempts, pause, within`,
		head + "retries: {pause: 3}":                           `m.yaml:3: model a: retries: pause: "3": want a time such as 500ms, 2s or 10m, from 10ms to 1m0s`,
		head + "retries: {within: 25h}":                        `m.yaml:3: model a: retries: within: "25h": want a time such as 500ms, 2s or 10m, from 1s to 24h0m0s`,
		head + "thinking: {}":                                  "m.yaml:3: model a: thinking: want an effort",
		head + "thinking: {budget: 4000}":                      "m.yaml:3: model a: thinking: kind openai has no budget",
		head + "kind: anthropic\n    thinking: {budget: 1000}": "m.yaml:4: model a: thinking: budget 1000: want at least 1024",
		head + "kind: anthropic\n    output: 4000\n    thinking: {budget: 4000}": "m.yaml:3: model a: thinking: budget 4000 leaves no part of output 4000",
		head + "thinking: {extra: {model: x}}":                                   "m.yaml:3: model a: thinking: extra: want members",
		head + "can: [embeddings]\n    thinking: high":                           "m.yaml:3: model a: thinking: a model for embeddings",
		head + "schema_omit: additionalProperties":                               "m.yaml:3: model a: schema_omit: want a list",
		head + "schema_omit: [" + strings.Repeat("x", 65) + "]":                  "m.yaml:3: model a: schema_omit: want at most 64 keywords of JSON Schema",
		"- a": "m.yaml:1: the list: want lines of the form",
		"models:\n  a: {free: true}\n  a: {free: true}":                          `m.yaml:3: models: "a" is in line 2 already`,
		"memory: b\nmodels:\n  a: {free: true}":                                  `memory: model "b" makes no vectors of notes; name one with "can: [embeddings]"`,
		"memory: a\nmodels:\n  a: {free: true}":                                  `memory: model "a" makes no vectors of notes`,
		"default: b\nmodels:\n  a: {free: true}":                                 `default: there is no model "b"; name one of a`,
		"models:\n  'a b': {free: true}":                                         `m.yaml:2: models: name "a b"`,
		head + "prize: 1":                                                        `m.yaml:3: model a: unknown field "prize"; the fields are can, context`,
		head + "key: sk-proj-abcdef0123456789":                                   "m.yaml:3: model a: key holds no reference",
		head + "key: env:sk-abcdef0123456789":                                    "m.yaml:3: model a: key holds no reference",
		head + "url: https://u:abcdef@h/v1":                                      "m.yaml:3: model a: url of host h: remove user, query and fragment; a key goes into the file or variable that key names",
		head + "url: h/v1":                                                       "want a URL such as",
		head + "url: []":                                                         "want one server, or a list of 1 to 64",
		head + "url: [http://h/v1, http://h/v1]":                                 "m.yaml:3: model a: url http://h/v1 is listed twice",
		head + "url: [http://h/v1, h]":                                           "want a URL such as",
		head + "kind: smoke":                                                     `kind "smoke": want openai, openai-responses, anthropic, or leave it out for openai`,
		head + "context: many":                                                   `m.yaml:3: model a: context: "many": want a whole number`,
		head + "context: 10\n    output: 10":                                     "output 10 leaves no part of context 10",
		head + "can: [fly]":                                                      `can: "fly": want one of tools, images, developer, embeddings`,
		head + "can: [embeddings, tools]":                                        `m.yaml:3: model a: a model for embeddings has no answers; write "can: [embeddings]"`,
		head + "can: [embeddings]\n    output: 9":                                "a model for embeddings has no answers",
		head + "can: [embeddings]\n    kind: anthropic":                          "kind anthropic has no embeddings; leave it out for openai",
		head + "can: [embeddings]\n    dimensions: 20000":                        "dimensions: more than 16384",
		head + "dimensions: 20":                                                  `dimensions are of a model that makes vectors; write "can: [embeddings]"`,
		head + "can: [embeddings]\n    fallbacks: [b]\n  b: {can: [embeddings]}": "vectors of another model cannot replace its own",
		head + "fallbacks: [b]\n  b: {can: [embeddings]}":                        "m.yaml:3: model a: fallbacks: model b only embeds texts",
		"default: a\n" + head + "can: [embeddings]":                              "default: model a only embeds texts",
		head + "can: tools":                                                      "want a list",
		head + "fallbacks: [b]":                                                  `m.yaml:3: model a: fallbacks: there is no other model "b"`,
		head + "fallbacks: [a]":                                                  `there is no other model "a"`,
		head + "free: yes please":                                                "want true or false",
		head + "free: true\n    states_cost: true":                               "it has two sources of cost",
		head + "prices: {date: 2026-11-01, input: 1}":                            "date, input and output are needed",
		head + "prices: {input: 1, output: 1}":                                   "date, input and output are needed",
		head + "prices: {date: soon}":                                            `date "soon": want a day`,
		head + "prices: {date: 2026-11-01, input: -1}":                           `input: "-1": want US dollars`,
		head + "prices: {date: 2026-11-01, input: 1e3}":                          `input: "1e3": want US dollars`,
		head + "prices: {date: 2026-11-01, input: 1001}":                         "more than 1000 US dollars",
		head + "prices: {date: 2026-11-01, input: 0.0, output: 0}":               `all are 0; write "free: true"`,
		head + "prices: public":                                                  `no public price of "a" is known (gpt-5.5,`,
		head + "timeouts: {}":                                                    "m.yaml:3: model a: timeouts: want connect, first_token, silence or whole",
		head + "timeouts: {idle: 3s}":                                            `m.yaml:3: model a: timeouts: unknown field "idle"; the fields are connect, first_token, silence, whole`,
		head + "timeouts: {connect: 6m}":                                         `m.yaml:3: model a: timeouts: connect: "6m": want a time such as 500ms, 2s or 10m, from 10ms to 5m0s`,
		head + "timeouts: {whole: 25h}":                                          `m.yaml:3: model a: timeouts: whole: "25h": want a time`,
		head + "failures: {late: {status: 400}}":                                 `m.yaml:3: model a: failures: class "late": want one of rate_limited, overloaded, unavailable`,
		head + "failures: {quota: {}}":                                           "m.yaml:3: model a: failures: quota: want status, code, words or regex",
		head + "failures: {quota: {status: [200]}}":                              `m.yaml:3: model a: failures: quota: status "200"`,
		head + "failures: {quota: {words: x}}":                                   "want a list",
		head + "failures: {quota: {word: [x]}}":                                  `unknown field "word"; the fields are code, regex, status, words`,
		head + "failures:\n      quota:\n        - {regex: ['(']}":               `m.yaml:5: model a: failures: quota: regex "(": error parsing regexp`,
		head + "limits: {}":                                                      "m.yaml:3: model a: limits: want requests or tokens",
		head + "limits: {requests: -1}":                                          `m.yaml:3: model a: limits: requests: "-1": want a whole number of requests a minute`,
		head + "limits: {concurrency: 0}":                                        `m.yaml:3: model a: limits: concurrency: "0": want a whole number of calls at one time, 1 to 1,000,000,000`,
		head + "limits: {request: 1}":                                            `limits: unknown field "request"; the fields are concurrency, requests, tokens`,
		head + "free: true\nkeys: {env:K: {limits: {tokens: 9}}}":                "m.yaml:4: keys: no model of the list has this key",
		head + "key: env:K\nkeys: {env:K: {limit: 9}}":                           `m.yaml:4: key env:K: unknown field "limit"; the fields are limits`,
		head + "key: env:K\nkeys: {sk-abcdef0123456789: 1}":                      "keys: no model of the list has this key",
		"":          "m.yaml: the file is empty",
		"models: [": "m.yaml: line 1",
	} {
		_, err := Parse("m.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "abcdef") {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}

// TestParseTellsAll: all mistakes of a list are reported together, a line each and in
// their order, without those that only follow from another mistake.
func TestParseTellsAll(t *testing.T) {
	_, err := Parse("m.yaml", []byte(`default: c
retries: {attempts: none}
models:
  a:
    kind: smoke
    url: h
    key: sk-proj-abcdef0123456789
    context: many
    output: 10
    prices: {date: soon, input: -1, output: 2}
    limits: {requests: 0}
  a: {free: true}
  b: {fallbacks: [d], can: [fly, tools], prize: 1}
keys:
  env:K: {limits: {tokens: 1}}
`))
	want := []string{
		`m.yaml:1: default: there is no model "c"`,
		"m.yaml:2: the list: retries: attempts",
		`m.yaml:5: model a: kind "smoke"`,
		"m.yaml:6: model a: url",
		"m.yaml:7: model a: key holds no reference",
		"m.yaml:8: model a: context",
		"m.yaml:10: model a: prices: date",
		"m.yaml:10: model a: prices: input",
		"m.yaml:11: model a: limits: requests",
		`m.yaml:12: models: "a" is in line 4 already`,
		`m.yaml:13: model b: can: "fly"`,
		`m.yaml:13: model b: unknown field "prize"`,
		`m.yaml:13: model b: fallbacks: there is no other model "d"`,
		"m.yaml:15: keys: no model of the list has this key",
	}
	got := strings.Split(fmt.Sprint(err), "\n")
	if len(got) != len(want) || strings.Contains(fmt.Sprint(err), "abcdef") {
		t.Fatalf("%d mistakes, want %d:\n%v", len(got), len(want), err)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%s\nwant %s", got[i], want[i])
		}
	}
	_, err = Parse("m.yaml", []byte("models:\n  a:\n    free: true\n    fallbacks:\n      - x\n  v: {can: [embeddings],\n    fallbacks: [a]}\nmemory: a\ndefault: v\n"))
	for i, want := range []string{
		`m.yaml:5: model a: fallbacks: there is no other model "x"`, "m.yaml:7: model v: fallbacks: vectors", `m.yaml:8: memory: model "a"`, "m.yaml:9: default: model v",
	} {
		if got := strings.Split(fmt.Sprint(err), "\n"); len(got) != 4 || !strings.HasPrefix(got[i], want) {
			t.Errorf("mistake %d is not %q:\n%v", i, want, err)
		}
	}
	if _, err := Parse("m.yaml", []byte("models:\n  a: {free: true"+strings.Repeat(", x: 1", 200)+"}\n")); strings.Count(fmt.Sprint(err), "\n") != 50 || !strings.HasSuffix(fmt.Sprint(err), "m.yaml: 150 more mistakes") {
		t.Errorf("%v", err)
	}
}

func TestCost(t *testing.T) {
	p := &Prices{"", 250_000, 25_000, 312_500, 2_000_000}
	for _, c := range []struct {
		u    session.Usage
		want int64
	}{
		{session.Usage{}, 0},
		{session.Usage{Input: 1}, 1}, // a quarter of one, rounded up
		{session.Usage{Input: 1_000_000, Output: 1_000_000}, 2_250_000},
		{session.Usage{Input: 1_000_000, CacheRead: 800_000, CacheWrite: 100_000}, 25_000 + 20_000 + 31_250},
		{session.Usage{Input: 10, CacheRead: 20}, 1}, // of a server that counts cached tokens separately
		{session.Usage{Input: -5, Output: -7}, 0},
		{session.Usage{Input: math.MaxInt64, Output: math.MaxInt64}, math.MaxInt64},
	} {
		if got := p.Cost(c.u); got != c.want {
			t.Errorf("%+v costs %d, want %d", c.u, got, c.want)
		}
	}
}

func TestMicroUSD(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "1": 1_000_000, "0.25": 250_000, "0.000001": 1, "12.5000000": 12_500_000, "1.": 1_000_000} {
		if got, err := MicroUSD(text); got != want || err != nil {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", ".5", "-1", "1,5", "1e3", "0.0000001", "1.2.3", "9999999999", "NaN"} {
		if got, err := MicroUSD(text); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
}

// TestKey: a key comes only from the place that the list names.
func TestKey(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(dir, "secrets"), 0o700))
	for name, text := range map[string]string{"secrets/slow": "sk-of-slow\n", "other": "sk-of-another"} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	l := must.Get(Parse(filepath.Join(dir, "m.yaml"), []byte(good)))(t)
	env := func(name string) string { return map[string]string{"EXAMPLE_KEY": " sk-of-fast ", "OTHER": "x"}[name] }
	for ref, want := range map[string]string{
		"env:EXAMPLE_KEY": "sk-of-fast", l.Lookup("slow").Key: "sk-of-slow",
		"env:OTHER": "", "file:" + filepath.Join(dir, "other"): "", "OTHER": "",
	} {
		if got, err := l.Key(env, ref); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", ref, got, err, want)
		}
	}
	if _, err := l.Key(func(string) string { return "" }, "env:EXAMPLE_KEY"); err == nil || !strings.Contains(err.Error(), "export EXAMPLE_KEY=") {
		t.Errorf("%v", err)
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "secrets/slow"), []byte(" \n"), 0o600))
	if _, err := l.Key(env, l.Lookup("slow").Key); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("%v", err)
	}
}

func TestPublicPrices(t *testing.T) {
	all, err := PublicPrices()
	if err != nil || len(all) < 5 {
		t.Fatal(all, err)
	}
	for _, p := range all {
		if p.Date == "" || p.Input == 0 || p.Output < p.Input && !strings.Contains(p.ID, "embedding") || p.CachedInput > p.Input {
			t.Errorf("%+v", p)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("models: {a: &x {free: true}, b: *x}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := Parse("m.yaml", data)
		if err != nil {
			return
		}
		for _, m := range l.All() {
			if _, err := l.Chain(m.Name); err != nil {
				t.Error(err)
			}
		}
	})
}

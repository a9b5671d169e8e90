package mcp_test

import (
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/agents/mcp"
)

// TestParseRefuses: each mistake has the line and a remedy, and no token is repeated.
func TestParseRefuses(t *testing.T) {
	const head = "servers:\n  a:\n    command: x\n    "
	for text, want := range map[string]string{
		"":                                             `mcp.yaml: the file is empty; put servers below "servers:"`,
		"srevers: {}":                                  `mcp.yaml:1: the list: unknown field "srevers"; the fields are servers`,
		"servers: {}":                                  "the list has no servers",
		"servers: {a b: {command: x}}":                 `servers: name "a b": want 1 to 24`,
		"servers: {a__b: {command: x}}":                `name "a__b": want 1 to 24 of letters, digits, - and _, without two _ in a row`,
		"servers: {a_: {command: x}}":                  `name "a_": want 1 to 24 of letters, digits, - and _, without two _ in a row and none at the end`,
		head + "wher: host":                            `mcp.yaml:4: server a: unknown field "wher"; the fields are call_ms, command, env, oauth, start_ms, state, token, tools, url, where`,
		head + "where: hots":                           `where: "hots": want sandbox or host`,
		head + "token: env:A":                          "token is for a url; name the variable in env",
		head + "url: http://h":                         "want either a command or a url",
		head + "env: [A=abcdef]":                       "is not the name of a variable",
		head + "call_ms: soon":                         `call_ms: "soon": want milliseconds, 1 to 3600000`,
		head + "call_ms: 99999999999999":               "want milliseconds",
		head + "state: both":                           `state: "both": want workspace or outside`,
		head + "where: host\n    state: workspace":     "state: workspace is of a server in a sandbox",
		head + "tools: []":                             "mcp.yaml:4: server a: tools: there are none; name the tools, or leave it out for all",
		head + "tools: x":                              "tools: want a list",
		"servers: {a: {command: []}}":                  "command: want a line for sh, or a list",
		"servers: {a: {}}":                             "want either a command or a url",
		"servers: {a: {url: h}}":                       "url: want a URL such as",
		`servers: {a: {url: "http://u:abcdef@h"}}`:     "remove user, query and fragment",
		"servers: {a: {url: http://h, token: abcdef}}": "token holds no reference: a token does not belong into this file",
		"servers: {a: {url: http://h, where: host}}":   "where, env and state are of a command",
		"servers: {a: {url: http://h, oauth: {}}}":     "a: oauth: want issuer, client and secret; or login, the file",
		"servers: {a: {url: http://h, oauth: {login: f, client: c}}}":                         "issuer and client go together",
		"servers: {a: {url: http://h, oauth: {login: f, secret: env:S}}}":                     "secret is of a client",
		"servers: {a: {url: http://h, oauth: {issuer: http://i, client: c, secret: abcdef}}}": "secret holds no reference",
		"servers: {a: {url: http://h, token: env:T, oauth: {login: f}}}":                      "want either a token or oauth",
		"servers: {a: {url: http://h, oauth: {isuer: x}}}":                                    `unknown field "isuer"; the fields are client, issuer, login, scopes, secret`,
		"servers: {a: {command: x, oauth: {login: f}}}":                                       "oauth is for a url",
		"servers:\n  a: {command: x}\n  a: {command: y}":                                      `mcp.yaml:3: servers: "a" is in line 2 already`,
	} {
		_, err := mcp.Parse("mcp.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || text != head+"env: [A=abcdef]" && strings.Contains(err.Error(), "abcdef") {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("servers:\n  a: {command: [x, y], where: host, env: [A]}\n  b: {url: http://h, token: env:T}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := mcp.Parse("mcp.yaml", data)
		if err != nil {
			return
		}
		for _, s := range l.All() {
			if (len(s.Command) == 0) == (s.URL == "") || s.Call <= 0 {
				t.Errorf("%+v", s)
			}
		}
	})
}

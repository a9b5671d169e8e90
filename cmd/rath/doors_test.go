package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/web/access"
	"github.com/rathcluster/rath/internal/web/api"
)

// TestCommandsOverHTTP: each command has a route that serves the same, or a reason why it
// has none; and each route that is named answers.
func TestCommandsOverHTTP(t *testing.T) {
	a := must.Get(api.New(nil))(t)
	listed := map[string]api.Command{}
	for _, c := range a.Commands() {
		if _, twice := listed[c.Name]; twice {
			t.Errorf("%s is listed twice", c.Name)
		}
		if (len(c.Routes) == 0) == (c.Reason == "") {
			t.Errorf("%s has the routes %q and the reason %q: it needs one of both", c.Name, c.Routes, c.Reason)
		}
		listed[c.Name] = c
	}
	var out bytes.Buffer
	var names []string
	var walk func(at string, c *cobra.Command)
	walk = func(at string, c *cobra.Command) {
		for _, sub := range c.Commands() {
			name := strings.TrimSpace(at + " " + sub.Name())
			if sub.Hidden || sub.Name() == "help" || !sub.Runnable() {
				continue
			}
			if sub.HasSubCommands() {
				walk(name, sub)
			}
			if sub.HasSubCommands() && name != "doctor" && name != "doctor config" {
				continue // a noun, which only groups others
			}
			names = append(names, name)
		}
	}
	walk("", root(app.New("rath", strings.NewReader(""), &out, &out, func(string) string { return "" })))
	for _, name := range names {
		if _, ok := listed[name]; !ok {
			t.Errorf("rath %s has no route, and no reason why: add it to package api", name)
		}
	}
	for name, c := range listed {
		if !slices.Contains(names, name) {
			t.Errorf("%s is listed and is no command", name)
		}
		for _, route := range c.Routes {
			method, path, _ := strings.Cut(route, " ")
			path = regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllString(path, "x")
			w := httptest.NewRecorder()
			r := httptest.NewRequest(method, path+"?unknown=1", nil)
			caller := &access.Caller{Role: "client"}
			a.ServeHTTP(w, r.WithContext(access.With(r.Context(), caller)))
			if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), `"unknown`) && !strings.Contains(w.Body.String(), "unknown") {
				t.Errorf("%s, for rath %s: %d %s", route, name, w.Code, w.Body)
			}
		}
	}
}

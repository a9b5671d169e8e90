package app

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// natsContext is the address and login of a server, as the nats command line stores
// them.
type natsContext struct {
	Name     string `json:"-"`
	URL      string `json:"url"`
	User     string `json:"user"`
	Password string `json:"password"`
	Token    string `json:"token"`
	Creds    string `json:"creds"`
	NKey     string `json:"nkey"`
	CA       string `json:"ca"`
	Cert     string `json:"cert"`
	Key      string `json:"key"`
	Inbox    string `json:"inbox_prefix"`
}

// login returns the address of the server, by URL or by a context, with its
// credentials: those of flags take precedence over those of the context and the
// environment.
func (a *App) login() (natsContext, error) {
	c := natsContext{URL: a.Config.Server.Value}
	if c.URL == "" {
		var err error
		if c, err = a.readContext(cmp.Or(a.Config.Context.Value, a.selectedContext())); err != nil {
			return c, err
		}
	}
	c.Creds, c.CA = cmp.Or(a.Config.Creds.Value, c.Creds), cmp.Or(c.CA, a.Getenv("NATS_CA"))
	if c.Creds == "" && c.NKey == "" && c.User == "" {
		c.User, c.Password = a.Getenv("NATS_USER"), a.Getenv("NATS_PASSWORD")
	}
	return c, nil
}

// natsDir returns the directory in which the nats command line stores its contexts; ""
// without one.
func (a *App) natsDir() string { return a.userConfig("nats") }

// selectedContext returns the default context of the nats command line.
func (a *App) selectedContext() string {
	dir := a.natsDir()
	if dir == "" {
		return ""
	}
	data, err := os.ReadFile(filepath.Join(dir, "context.txt"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// readContext reads a context by its name.
func (a *App) readContext(name string) (natsContext, error) {
	c := natsContext{Name: name}
	dir := a.natsDir()
	if dir == "" {
		return c, Fail(ExitUsage, "context %q: there is no home directory with contexts of the nats command line", name)
	}
	if name == "" || strings.ContainsAny(name, `/\`) || strings.HasPrefix(name, ".") {
		return c, Fail(ExitUsage, "context %q: want the name of a context", name)
	}
	file := filepath.Join(dir, "context", name+".json")
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return c, Fail(ExitNotFound, "context %q: %s does not exist; \"nats context ls\" lists the contexts", name, file)
	}
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, Fail(ExitUsage, "context %q: %s: %w", name, file, err)
	}
	if c.Token != "" || c.Cert != "" || c.Key != "" {
		return c, Fail(ExitUsage, "context %q logs in with a token or a client certificate, which rath does not do yet; "+
			"use a creds file, an nkey, or user and password", name)
	}
	return c, nil
}

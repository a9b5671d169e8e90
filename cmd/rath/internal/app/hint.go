package app

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Hint returns a command with the flags that reach the same system as this one.
func (a *App) Hint(args ...string) string {
	words := append([]string{a.Invocation()}, args...)
	for _, g := range []struct{ flag, value string }{
		{"store", a.flags.store}, {"server", withoutUser(a.flags.server)}, {"context", a.flags.context}, {"creds", a.flags.creds}, {"tenant", a.flags.tenant},
	} {
		if g.value != "" {
			words = append(words, "--"+g.flag, ShellWord(g.value))
		}
	}
	return strings.Join(words, " ")
}

// withoutUser removes user and password from addresses: hints are copied and kept.
func withoutUser(servers string) string {
	all := strings.Split(servers, ",")
	for i, one := range all {
		if u, err := url.Parse(one); err == nil && u.User != nil {
			u.User = nil
			all[i] = u.String()
		}
	}
	return strings.Join(all, ",")
}

// Invocation returns the command that started this program, as a person would type it.
func (a *App) Invocation() string {
	if strings.Contains(filepath.ToSlash(a.program), "/go-build") {
		if _, err := os.Stat(filepath.Join("cmd", "rath", "main.go")); err == nil {
			return "go run ./cmd/rath"
		}
		return "go run github.com/rathcluster/rath/cmd/rath"
	}
	if a.program == "" {
		return "rath"
	}
	return ShellWord(a.program)
}

// ShellWord quotes a text that a shell would not read as one plain word.
func ShellWord(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+=,", r)
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

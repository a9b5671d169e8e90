package app

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rathcluster/rath/internal/agents/checks"
	"github.com/rathcluster/rath/internal/agents/mcp"
	"github.com/rathcluster/rath/internal/agents/roster"
	"github.com/rathcluster/rath/internal/agents/rules"
	"github.com/rathcluster/rath/internal/models"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
)

// Setting is a value with its origin.
type Setting struct {
	Value  string
	Origin string // "default", "--store", "RATH_STORE", "config.yaml:3"
}

// Given reports whether a flag of this command line sets the value.
func (s Setting) Given() bool { return strings.HasPrefix(s.Origin, "--") }

// Settings are the configuration. The order of precedence: flags, environment, file,
// default.
type Settings struct {
	Store   Setting
	Server  Setting
	Context Setting
	Creds   Setting
	Tenant  Setting
	Model   Setting
	Models  Setting
	MCP     Setting
	Rules   Setting
	Agents  Setting
	Checks  Setting
	Level   Setting
	Slots   Setting
	Unsafe  Setting
	Limits  Setting
	Image   Setting
	Network Setting
	Secrets Setting
	Private Setting
	Runtime Setting
	Format  Setting
	Color   Setting

	ServiceURL, ServiceKey, ServiceImage Setting // of an OpenSandbox server

	File string // the file that was read, "" for none
}

// Option describes one setting.
type Option struct {
	Key     string
	Env     []string // the first that is set counts
	flag    string
	Default string // default
	Doc     string
	check   func(string) error
	Field   func(*Settings) *Setting
}

var Options = []Option{
	{"store", []string{"RATH_STORE"}, "store", node.DefaultStore, "directory of the store", nil, func(s *Settings) *Setting { return &s.Store }},
	{"server", []string{"RATH_SERVER", "NATS_URL"}, "server", "", "NATS server to use instead of a store", checkServer, func(s *Settings) *Setting { return &s.Server }},
	{"context", []string{"RATH_CONTEXT", "NATS_CONTEXT"}, "context", "", "context of the nats command line", nil, func(s *Settings) *Setting { return &s.Context }},
	{"creds", []string{"RATH_CREDS", "NATS_CREDS"}, "creds", "", "file with NATS credentials", nil, func(s *Settings) *Setting { return &s.Creds }},
	{"tenant", []string{"RATH_TENANT"}, "tenant", string(session.DefaultTenant), "tenant", checkTenant, func(s *Settings) *Setting { return &s.Tenant }},
	{"model", []string{"RATH_MODEL", "OPENAI_DEFAULT_MODEL"}, "", "", "default model", nil, func(s *Settings) *Setting { return &s.Model }},
	{"mcp", []string{"RATH_MCP"}, "", "", "file with the list of MCP servers", checkServers, func(s *Settings) *Setting { return &s.MCP }},
	{"agents", []string{"RATH_AGENTS"}, "", "", "directory of agents in files NAME.md", checkAgents, func(s *Settings) *Setting { return &s.Agents }},
	{"checks", []string{"RATH_CHECKS"}, "", "", "file with commands to run after edits of models", checkChecks, func(s *Settings) *Setting { return &s.Checks }},
	{"rules", []string{"RATH_RULES"}, "", "", "file with rules for calls of models, or default", checkRules, func(s *Settings) *Setting { return &s.Rules }},
	{"models", []string{"RATH_MODELS"}, "", "", "file with the list of models", checkModels, func(s *Settings) *Setting { return &s.Models }},
	{"level", []string{"RATH_LEVEL"}, "level", string(streams.Fsync), "fsync or lazy", checkLevel, func(s *Settings) *Setting { return &s.Level }},
	{"slots", []string{"RATH_SLOTS"}, "", "64", "concurrent runs", checkSlots, func(s *Settings) *Setting { return &s.Slots }},
	{"unsafe", []string{"RATH_UNSAFE"}, "", "false", "accept sandboxes without confinement", checkBool, func(s *Settings) *Setting { return &s.Unsafe }},
	{"sandbox_limits", []string{"RATH_SANDBOX_LIMITS"}, "", "", "limits of a sandbox, as memory=1g,pids=200", checkLimits, func(s *Settings) *Setting { return &s.Limits }},
	{"sandbox_image", []string{"RATH_SANDBOX_IMAGE"}, "", "", "image of the containers of sandbox docker", nil, func(s *Settings) *Setting { return &s.Image }},
	{"sandbox_runtime", []string{"RATH_SANDBOX_RUNTIME"}, "", "", "the engine's runtime for them, as runsc", nil, func(s *Settings) *Setting { return &s.Runtime }},
	{"opensandbox_url", []string{"RATH_SANDBOX_OPENSANDBOX_URL"}, "", "", "server of sandbox opensandbox", nil, func(s *Settings) *Setting { return &s.ServiceURL }},
	{"opensandbox_key", []string{"RATH_SANDBOX_OPENSANDBOX_KEY_FILE"}, "", "", "file with its API key", nil, func(s *Settings) *Setting { return &s.ServiceKey }},
	{"opensandbox_image", []string{"RATH_SANDBOX_OPENSANDBOX_IMAGE"}, "", "", "image there, as NAME@sha256:DIGEST", nil, func(s *Settings) *Setting { return &s.ServiceImage }},
	{"sandbox_network", []string{"RATH_SANDBOX_NETWORK"}, "", "", "maximum network of tasks; any list of hosts", checkNetwork, func(s *Settings) *Setting { return &s.Network }},
	{"sandbox_secrets", []string{"RATH_SANDBOX_SECRETS"}, "", "", "lines of HOST HEADER: VALUE with ${NAME}", nil, func(s *Settings) *Setting { return &s.Secrets }},
	{"sandbox_private", []string{"RATH_SANDBOX_PRIVATE"}, "", "", "private ranges for hosts, as 10.1.0.0/16", checkPrivate, func(s *Settings) *Setting { return &s.Private }},
	{"format", []string{"RATH_FORMAT"}, "format", formatText, "text, json or jsonl", nil, func(s *Settings) *Setting { return &s.Format }},
	{"color", []string{"RATH_COLOR"}, "color", "auto", "auto, always or never", OneOf("auto", "always", "never"), func(s *Settings) *Setting { return &s.Color }},
}

// OneOf checks that a value is one of some words.
func OneOf(words ...string) func(string) error {
	return func(v string) error {
		if !slices.Contains(words, v) {
			return fmt.Errorf("%q: want %s or %s", v, strings.Join(words[:len(words)-1], ", "), words[len(words)-1])
		}
		return nil
	}
}

func checkModels(v string) error {
	_, err := models.Read(v)
	return err
}

func checkServers(v string) error {
	_, err := mcp.Read(v)
	return err
}

func checkAgents(v string) error {
	_, err := roster.ReadDir(v)
	return err
}

func checkChecks(v string) error {
	_, err := checks.Read(v)
	return err
}

func checkRules(v string) error {
	_, err := rules.Read(v)
	return err
}

func checkTenant(v string) error { return session.ValidID("tenant", v) }

func checkLevel(v string) error {
	_, err := streams.ParseLevel(v)
	return err
}

func checkLimits(v string) error {
	_, err := sandbox.ParseLimits(v)
	return err
}

func checkNetwork(v string) error {
	_, err := sandbox.ParseNetwork(v)
	return err
}

func checkPrivate(v string) error {
	_, err := node.ParsePrivate(v)
	return err
}

func checkSlots(v string) error {
	if n, err := strconv.Atoi(v); err != nil || n < 1 || n > 100_000 {
		return fmt.Errorf("%q: want a number from 1 to 100000", v)
	}
	return nil
}

func checkBool(v string) error {
	if _, err := strconv.ParseBool(v); err != nil {
		return fmt.Errorf("%q: want true or false", v)
	}
	return nil
}

// checkServer rejects a password in an address, which lists of processes show.
func checkServer(v string) error {
	if strings.Contains(v, " ") {
		return fmt.Errorf("%q: want one or more addresses such as nats://host:4222, separated by commas", v)
	}
	return nil
}

// settings reads flags, environment and file.
func (a *App) settings() (Settings, error) {
	var s Settings
	file, err := a.readConfig(&s)
	if err != nil {
		return s, err
	}
	for _, o := range Options {
		v := Setting{o.Default, "default"}
		if f, ok := file[o.Key]; ok {
			v = f
		}
		for _, name := range o.Env {
			if text := a.Getenv(name); text != "" {
				v = Setting{text, name}
				break
			}
		}
		if o.flag != "" {
			if f := a.set.Lookup(o.flag); f.Changed {
				v = Setting{f.Value.String(), "--" + o.flag}
			}
		}
		if o.check != nil && v.Value != "" {
			if err := o.check(v.Value); err != nil {
				where := v.Origin // a flag and a variable name the setting
				if v.Origin == file[o.Key].Origin {
					where += ": " + o.Key
				}
				return s, Fail(ExitUsage, "%s: %w", where, err)
			}
		}
		*o.Field(&s) = v
	}
	return s, nil
}

// userConfig returns a path below this user's directory of configurations; "" if there
// is no such directory.
func (a *App) userConfig(names ...string) string {
	return a.userFile("XDG_CONFIG_HOME", ".config", names...)
}

// Cache returns a path below this user's cache directory; "" if there is no such
// directory.
func (a *App) Cache(names ...string) string {
	return a.userFile("XDG_CACHE_HOME", ".cache", names...)
}

func (a *App) userFile(variable, below string, names ...string) string {
	dir := a.Getenv(variable)
	if dir == "" {
		home := a.Getenv("HOME")
		if home == "" {
			return ""
		}
		dir = filepath.Join(home, below)
	}
	return filepath.Join(dir, filepath.Join(names...))
}

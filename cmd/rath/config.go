package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/rathcluster/rath/natsbus"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/session"
)

// setting is a value with where it comes from.
type setting struct {
	Value  string
	Origin string // "default", "--store", "RATH_STORE", "config.yaml:3"
}

// given reports whether somebody chose the value on this command line.
func (s setting) given() bool { return strings.HasPrefix(s.Origin, "--") }

// settings are what can be configured. The order of precedence: flags,
// environment, file, default.
type settings struct {
	Store   setting
	Server  setting
	Context setting
	Creds   setting
	Tenant  setting
	Model   setting
	Level   setting
	Slots   setting
	Unsafe  setting
	Output  setting
	Color   setting

	File string // that was read, "" for none
}

// option describes one setting.
type option struct {
	key   string
	env   []string // the first that is set counts
	flag  string
	value string // default
	doc   string
	check func(string) error
	field func(*settings) *setting
}

var options = []option{
	{"store", []string{"RATH_STORE"}, "store", node.DefaultStore, "directory of the store", nil, func(s *settings) *setting { return &s.Store }},
	{"server", []string{"RATH_SERVER", "NATS_URL"}, "server", "", "NATS server to use instead of a store", checkServer, func(s *settings) *setting { return &s.Server }},
	{"context", []string{"RATH_CONTEXT", "NATS_CONTEXT"}, "context", "", "context of the nats command line", nil, func(s *settings) *setting { return &s.Context }},
	{"creds", []string{"RATH_CREDS", "NATS_CREDS"}, "creds", "", "file with NATS credentials", nil, func(s *settings) *setting { return &s.Creds }},
	{"tenant", []string{"RATH_TENANT"}, "tenant", string(session.DefaultTenant), "tenant", checkTenant, func(s *settings) *setting { return &s.Tenant }},
	{"model", []string{"RATH_MODEL", "OPENAI_DEFAULT_MODEL"}, "", "", "default model", nil, func(s *settings) *setting { return &s.Model }},
	{"level", []string{"RATH_LEVEL"}, "level", string(natsbus.Fsync), "fsync or lazy", checkLevel, func(s *settings) *setting { return &s.Level }},
	{"slots", []string{"RATH_SLOTS"}, "", "64", "runs at one time", checkSlots, func(s *settings) *setting { return &s.Slots }},
	{"unsafe", []string{"RATH_UNSAFE"}, "", "false", "accept sandboxes that only separate processes", checkBool, func(s *settings) *setting { return &s.Unsafe }},
	{"output", []string{"RATH_OUTPUT"}, "output", "table", "table, json or jsonl", oneOf("table", "json", "jsonl"), func(s *settings) *setting { return &s.Output }},
	{"color", []string{"RATH_COLOR"}, "color", "auto", "auto, always or never", oneOf("auto", "always", "never"), func(s *settings) *setting { return &s.Color }},
}

func oneOf(words ...string) func(string) error {
	return func(v string) error {
		if !slices.Contains(words, v) {
			return fmt.Errorf("%q: want %s or %s", v, strings.Join(words[:len(words)-1], ", "), words[len(words)-1])
		}
		return nil
	}
}

func checkTenant(v string) error { return session.ValidID("tenant", v) }

func checkLevel(v string) error {
	_, err := natsbus.ParseLevel(v)
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

// checkServer refuses a password in an address, which lists of processes show.
func checkServer(v string) error {
	if strings.Contains(v, " ") {
		return fmt.Errorf("%q: want one or more addresses such as nats://host:4222, separated by commas", v)
	}
	return nil
}

// settings reads flags, environment and file.
func (a *app) settings() (settings, error) {
	var s settings
	file, err := a.readConfig(&s)
	if err != nil {
		return s, err
	}
	for _, o := range options {
		v := setting{o.value, "default"}
		if f, ok := file[o.key]; ok {
			v = f
		}
		for _, name := range o.env {
			if text := a.getenv(name); text != "" {
				v = setting{text, name}
				break
			}
		}
		if o.flag != "" {
			if f := a.set.Lookup(o.flag); f.Changed {
				v = setting{f.Value.String(), "--" + o.flag}
			}
		}
		if o.check != nil && v.Value != "" {
			if err := o.check(v.Value); err != nil {
				where := v.Origin // a flag and a variable name the setting
				if v.Origin == file[o.key].Origin {
					where += ": " + o.key
				}
				return s, fail(exitUsage, "%s: %w", where, err)
			}
		}
		*o.field(&s) = v
	}
	return s, nil
}

// readConfig reads the configuration file: --config, RATH_CONFIG, or the one in
// the user's directory, which need not exist.
func (a *app) readConfig(s *settings) (map[string]setting, error) {
	name, named := a.flags.config, true
	if name == "" {
		name = a.getenv("RATH_CONFIG")
	}
	if name == "" {
		name, named = a.defaultConfig(), false
	}
	if name == "" {
		return nil, nil
	}
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil, nil
	}
	if err != nil {
		return nil, fail(exitUsage, "configuration: %w", err)
	}
	s.File = name
	return parseConfig(name, data)
}

// userConfig is a name below where programs keep the configuration of this
// user; "" if there is no place for that.
func (a *app) userConfig(names ...string) string {
	dir := a.getenv("XDG_CONFIG_HOME")
	if dir == "" {
		home := a.getenv("HOME")
		if home == "" {
			return ""
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, filepath.Join(names...))
}

// defaultConfig is the configuration file of this user; "" if there is no
// place for one.
func (a *app) defaultConfig() string { return a.userConfig("rath", "config.yaml") }

// parseConfig reads a flat YAML mapping. Errors name file and line.
func parseConfig(name string, data []byte) (map[string]setting, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, fail(exitUsage, "%s: %s", name, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	out := map[string]setting{}
	if len(doc.Content) == 0 {
		return out, nil
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, fail(exitUsage, "%s:%d: want lines of the form \"key: value\"", name, top.Line)
	}
	for i := 0; i < len(top.Content); i += 2 {
		k, v := top.Content[i], top.Content[i+1]
		at := fmt.Sprintf("%s:%d", name, k.Line)
		if !slices.ContainsFunc(options, func(o option) bool { return o.key == k.Value }) {
			return nil, fail(exitUsage, "%s: unknown key %q; the keys are %s", at, k.Value, optionKeys())
		}
		if v.Kind != yaml.ScalarNode {
			return nil, fail(exitUsage, "%s: %s: want one value", at, k.Value)
		}
		out[k.Value] = setting{v.Value, at}
	}
	return out, nil
}

func optionKeys() string {
	keys := make([]string, len(options))
	for i, o := range options {
		keys[i] = o.key
	}
	return strings.Join(keys, ", ")
}

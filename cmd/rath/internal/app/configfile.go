package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// readConfig reads the configuration file: --config, RATH_CONFIG, or the one in
// the user's directory, which need not exist.
func (a *App) readConfig(s *Settings) (map[string]Setting, error) {
	name, named := a.flags.config, true
	if name == "" {
		name = a.Getenv("RATH_CONFIG")
	}
	if name == "" {
		name, named = a.ConfigFile(), false
	}
	if name == "" {
		return nil, nil
	}
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil, nil
	}
	if err != nil {
		return nil, Fail(ExitUsage, "configuration: %w", err)
	}
	s.File = name
	return parseConfig(name, data)
}

// ConfigFile returns the configuration file of this user; "" without a directory for
// it.
func (a *App) ConfigFile() string { return a.userConfig("rath", "config.yaml") }

// parseConfig reads a flat YAML mapping. Errors name file and line.
func parseConfig(name string, data []byte) (map[string]Setting, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, Fail(ExitUsage, "%s: %s", name, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	out := map[string]Setting{}
	if len(doc.Content) == 0 {
		return out, nil
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, Fail(ExitUsage, "%s:%d: want lines of the form \"key: value\"", name, top.Line)
	}
	for i := 0; i < len(top.Content); i += 2 {
		k, v := top.Content[i], top.Content[i+1]
		at := fmt.Sprintf("%s:%d", name, k.Line)
		if !slices.ContainsFunc(Options, func(o Option) bool { return o.Key == k.Value }) {
			return nil, Fail(ExitUsage, "%s: unknown key %q; the keys are %s", at, k.Value, optionKeys())
		}
		if v.Kind != yaml.ScalarNode {
			return nil, Fail(ExitUsage, "%s: %s: want one value", at, k.Value)
		}
		out[k.Value] = Setting{v.Value, at}
	}
	return out, nil
}

func optionKeys() string {
	keys := make([]string, len(Options))
	for i, o := range Options {
		keys[i] = o.Key
	}
	return strings.Join(keys, ", ")
}

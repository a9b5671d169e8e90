package listfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rathcluster/rath/llm"
)

// maxFile bounds a list in bytes, and maxEntries its entries.
const (
	maxFile    = 1 << 20
	maxEntries = 1000
)

// Parser reads one list. It collects all mistakes of the list, to report them together.
type Parser struct {
	File  string
	wrong []mistake
}

type mistake struct {
	line int
	err  error
}

// maxMistakes bounds the reported mistakes.
const maxMistakes = 50

// Err returns the mistakes, a line each and in the order of the file; nil if there are none.
func (p *Parser) Err() error {
	slices.SortStableFunc(p.wrong, func(a, b mistake) int { return cmp.Compare(a.line, b.line) })
	var all []error
	for i, one := range p.wrong {
		if i == maxMistakes {
			all = append(all, fmt.Errorf("%s: %d more mistakes", p.File, len(p.wrong)-i))
			break
		}
		all = append(all, one.err)
	}
	return errors.Join(all...)
}

// Mistakes returns the number of mistakes so far. A check of several fields together
// uses it to find out whether one of them was wrong already.
func (p *Parser) Mistakes() int { return len(p.wrong) }

// Parse returns a parser and the root of a list. Its entries are below field.
func Parse(file, field string, data []byte) (*Parser, *yaml.Node, error) {
	if len(data) > maxFile {
		return nil, nil, fmt.Errorf("%s: it has %d bytes, at most %d are read", file, len(data), maxFile)
	}
	var doc yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(data)).Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil, fmt.Errorf("%s: the file is empty; put %s below \"%s:\"", file, field, field)
	} else if err != nil {
		return nil, nil, fmt.Errorf("%s: %s", file, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	return &Parser{File: file}, doc.Content[0], nil
}

// Secret returns the value of a reference in a list: "env:NAME" or "file:PATH", as Key
// reads it. field is its name in errors, such as "key". A client may read the
// errors, so they have names of files without their folders.
func Secret(env func(string) string, file, ref, field string) (string, error) {
	kind, name, _ := strings.Cut(ref, ":")
	file = filepath.Base(file)
	if kind == "env" {
		if secret := strings.TrimSpace(env(name)); secret != "" {
			return secret, nil
		}
		return "", fmt.Errorf("the variable %s, which %s names for the %s, is not set; export %s=... where this node starts", name, file, field, name)
	}
	data, err := os.ReadFile(name)
	name = filepath.Base(name)
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		err = failed.Err
	}
	if err != nil {
		return "", fmt.Errorf("the file %s, which %s names for the %s, cannot be read where this node runs: %w", name, file, field, err)
	}
	secret := strings.TrimSpace(string(data))
	if secret == "" {
		return "", fmt.Errorf("the file %s, which %s names for the %s, is empty; write the %s into it", name, file, field, field)
	}
	return secret, nil
}

// Fail records a mistake in a line.
func (p *Parser) Fail(line int, format string, args ...any) {
	p.wrong = append(p.wrong, mistake{line, fmt.Errorf("%s:%d: %s", p.File, line, fmt.Sprintf(format, args...))})
}

// Each calls f for the entries of a mapping, whose keys must differ.
func (p *Parser) Each(n *yaml.Node, field string, f func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		p.Fail(n.Line, "%s: want lines of the form \"name: value\"", field)
		return
	}
	lines := map[string]int{}
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i]
		if first, again := lines[key.Value]; again {
			p.Fail(key.Line, "%s: %q is in line %d already; give each its own name, or remove one", field, llm.Clip(key.Value, 80), first)
			continue
		}
		lines[key.Value] = key.Line
		f(key, n.Content[i+1])
	}
	if len(lines) > maxEntries {
		p.Fail(n.Line, "%s: %d entries, at most %d are read", field, len(lines), maxEntries)
	}
}

// Fields reads a mapping of known fields.
func (p *Parser) Fields(n *yaml.Node, field string, known map[string]func(*yaml.Node)) {
	p.Each(n, field, func(key, value *yaml.Node) {
		read, ok := known[key.Value]
		if !ok {
			names := make([]string, 0, len(known))
			for name := range known {
				names = append(names, name)
			}
			slices.Sort(names)
			p.Fail(key.Line, "%s: unknown field %q; the fields are %s", field, llm.Clip(key.Value, 80), strings.Join(names, ", "))
			return
		}
		read(value)
	})
}

// Text reads a text of one line.
func (p *Parser) Text(n *yaml.Node, field string) string {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Value == "" {
		p.Fail(n.Line, "%s: want a text", field)
		return ""
	}
	if len(n.Value) > llm.MaxNameLen || strings.ContainsFunc(n.Value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		p.Fail(n.Line, "%s: want at most %d printable bytes", field, llm.MaxNameLen)
		return ""
	}
	return n.Value
}

// Texts reads a list of texts that differ.
func (p *Parser) Texts(n *yaml.Node, field string) (all []string) {
	if n.Kind != yaml.SequenceNode {
		p.Fail(n.Line, "%s: want a list, such as [a, b]", field)
		return nil
	}
	for _, one := range n.Content {
		text := p.Text(one, field)
		if text == "" {
			continue
		}
		if slices.Contains(all, text) {
			p.Fail(one.Line, "%s: %q is listed twice; remove one", field, text)
		}
		all = append(all, text)
	}
	return all
}

// Yes reads true or false.
func (p *Parser) Yes(n *yaml.Node, field string) bool {
	if n.Value != "true" && n.Value != "false" {
		p.Fail(n.Line, "%s: %q: want true or false", field, llm.Clip(n.Value, 40))
	}
	return n.Value == "true"
}

// Key reads a reference to a secret into the field of that name, such as key. An
// invalid reference may be the secret itself, so the error does not repeat it.
func (p *Parser) Key(n *yaml.Node, entry, field string) string {
	kind, name, _ := strings.Cut(n.Value, ":")
	switch {
	case n.Kind == yaml.ScalarNode && kind == "env" && name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == "" && !strings.HasPrefix(name, "sk-"):
		return n.Value
	case n.Kind == yaml.ScalarNode && kind == "file" && name != "" && len(name) <= llm.MaxNameLen-len("file:"):
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(p.File), name)
		}
		return "file:" + name
	}
	p.Fail(n.Line, "%s: %s holds no reference: a %s does not belong into this file; write env:NAME for a variable of the environment, or file:PATH", entry, field, field)
	return ""
}

package app

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/scripted"
)

// ReadInput reads a file, or standard input for "-", up to a size.
func (a *App) ReadInput(name string, limit int64) ([]byte, error) {
	in, said := a.In, "standard input"
	if name != "-" {
		f, err := OpenRegular(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in, said = f, name
	}
	data, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, Fail(ExitUsage, "%s is larger than %s bytes", said, excerpt.Thousands(limit))
	}
	return data, nil
}

// OpenRegular opens a regular file and rejects everything else. Opening a pipe without
// a writer would block, and no signal would end that.
func OpenRegular(name string) (*os.File, error) {
	if fi, err := os.Stat(name); err == nil && !fi.Mode().IsRegular() {
		return nil, irregular(name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	if fi, err := f.Stat(); err == nil && !fi.Mode().IsRegular() { // replaced meanwhile
		return nil, errors.Join(irregular(name), f.Close())
	}
	return f, nil
}

func irregular(name string) error { return Fail(ExitUsage, "%s is no regular file", name) }

// ScriptModels returns models that answer all calls from a script. Without a name it
// returns nil, for the usual models.
func (a *App) ScriptModels(name string) (llm.Models, error) {
	if name == "" {
		return nil, nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	s, err := scripted.Parse(filepath.Base(name), data)
	if err != nil {
		return nil, WithCode(ExitUsage, err)
	}
	m, err := scripted.New(s, nil)
	if err != nil {
		return nil, WithCode(ExitUsage, err)
	}
	return AnyKind(m), nil
}

// AnyKind lets models answer for providers of every kind.
func AnyKind(m llm.Models) llm.Models { return anyKind{m} }

type anyKind struct{ llm.Models }

func (k anyKind) Client(ctx context.Context, p llm.Provider) (llm.Client, error) {
	p.Kind = ""
	return k.Models.Client(ctx, p)
}

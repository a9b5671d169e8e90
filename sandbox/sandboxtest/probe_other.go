//go:build !linux

package sandboxtest

import "os"

// attempts is empty: no backend offers kernel isolation on this system.
var attempts map[string]func() error

func leakFile(name string) (func() error, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	return f.Close, nil
}

func inMemory(string) bool { return false }

func errnoName(error) string { return "" }

//go:build !linux

package natsserver

import "errors"

func unknownFileSystem(string) error { return errors.New("file systems are known on Linux only") }

// files is not supported on this system.
type files struct{}

func openFiles(string, func(string) error) (*files, error) { return nil, unknownFileSystem("") }

func forgetFiles(string) error { return nil }

func (*files) sync() error  { return nil }
func (*files) suspect()     {}
func (*files) close() error { return nil }

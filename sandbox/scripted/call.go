package scripted

import (
	"fmt"
	"io"
	"io/fs"
	"os"

	"mvdan.cc/sh/v3/expand"

	"github.com/rathcluster/rath/sandbox"
)

// Call is one call of a program that is implemented by a Go function.
type Call struct {
	Args           []string // the name of the program first
	Dir            string   // the absolute working directory
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	env expand.Environ
	p   *process
}

// Getenv returns a variable of the environment.
func (c *Call) Getenv(name string) string { return c.env.Get(name).String() }

// Open opens a file as os.OpenFile does, relative to Dir and never outside the sandbox.
// Writes fail once the command has ended.
func (c *Call) Open(name string, flag int, perm fs.FileMode) (io.ReadWriteCloser, error) {
	leave, err := c.p.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	f, err := c.p.x.disk.open(absolute(c.Dir, name), flag, perm)
	if err != nil {
		return nil, err
	}
	return &handle{f, c.p}, nil
}

// Cmd returns the sandbox's command that the call belongs to.
func (c *Call) Cmd() sandbox.Cmd { return c.p.cmd }

func (c *Call) shell() shell {
	return shell{dir: c.Dir, env: c.env, in: c.Stdin, out: c.Stdout, err: c.Stderr}
}

// fail prints an error and returns its exit code.
func (c *Call) fail(err error) int {
	fmt.Fprintf(c.Stderr, "%s: %v\n", c.Args[0], err)
	return 1
}

// change calls do with the root and the relative path of a name.
func (c *Call) change(name string, do func(root *os.Root, name string) error) error {
	leave, err := c.p.enter()
	if err != nil {
		return err
	}
	defer leave()
	root, rel, err := c.p.x.disk.at(absolute(c.Dir, name))
	if err != nil {
		return err
	}
	return do(root, rel)
}

// options removes the arguments with a dash and returns their letters.
func (c *Call) options() (letters string, rest []string) {
	rest = c.Args[1:]
	for len(rest) > 0 && len(rest[0]) > 1 && rest[0][0] == '-' {
		arg := rest[0]
		rest = rest[1:]
		if arg == "--" {
			break
		}
		letters += arg[1:]
	}
	return letters, rest
}

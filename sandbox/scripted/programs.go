package scripted

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"mvdan.cc/sh/v3/interp"
)

// Programs returns the names of the programs that commands find, in addition to the shell's
// builtins.
func Programs() []string { return slices.Sorted(maps.Keys(programs())) }

func programs() map[string]func(context.Context, *Call) int {
	return map[string]func(context.Context, *Call) int{
		"cat": cat, "chmod": chmod, "cp": cp, "env": env, "grep": grep, "head": head, "kill": kill, "ln": ln, "ls": ls,
		"mkdir": mkdir, "mkfifo": mkfifo, "mv": mv, "rm": rm, "rmdir": rm, "seq": seq, "setsid": setsid, "sh": sh,
		"sleep": sleep, "sort": sorted, "tail": tail, "touch": touch, "tr": tr, "wc": wc,
	}
}

// sh runs a script from its arguments, a file or standard input.
func sh(ctx context.Context, c *Call) int {
	args := c.Args[1:]
	var err error
	switch {
	case len(args) >= 2 && args[0] == "-c":
		params := args[2:]
		if len(params) > 0 { // the first one is the script's name
			params = params[1:]
		}
		err = c.p.script(ctx, c.shell(), args[1], "", params)
	case len(args) >= 1:
		err = c.p.scriptFile(ctx, c, args[0], args[1:])
	default:
		var text []byte
		if text, err = io.ReadAll(c.Stdin); err == nil {
			err = c.p.script(ctx, c.shell(), string(text), "", nil)
		}
	}
	return exitOf(c, err)
}

// exitOf returns the exit code of a script for the program that ran it; above 255 for a
// signal.
func exitOf(c *Call, err error) int {
	if sig, ok := errors.AsType[signalled](err); ok {
		return 256 + int(sig)
	}
	if status, ok := errors.AsType[interp.ExitStatus](err); ok {
		return int(status)
	}
	if err != nil {
		return c.fail(err)
	}
	return 0
}

func setsid(ctx context.Context, c *Call) int {
	return exitOf(c, c.p.script(ctx, c.shell(), `"$@"`, "", c.Args[1:]))
}

// kill supports one process, the shell's.
func kill(ctx context.Context, c *Call) int {
	sig, args := syscall.SIGTERM, c.Args[1:]
	if len(args) > 1 && strings.HasPrefix(args[0], "-") {
		name := strings.TrimPrefix(args[0][1:], "SIG")
		known, ok := map[string]syscall.Signal{"KILL": 9, "TERM": 15, "INT": 2, "HUP": 1, "STOP": stopSignal}[name]
		if n, isNumber := number(name); isNumber {
			known, ok = syscall.Signal(n), n > 0 && n < 65 //nolint:gosec // bounded
		}
		if !ok {
			return c.fail(fmt.Errorf("unknown signal %s", name))
		}
		sig, args = known, args[1:]
	}
	for _, a := range args {
		if a != strconv.Itoa(os.Getpid()) {
			return c.fail(fmt.Errorf("no such process %s", a))
		}
	}
	if sig == stopSignal {
		<-ctx.Done()
		return 1
	}
	return 256 + int(sig)
}

// stopSignal is SIGSTOP by its number on Linux.
const stopSignal = syscall.Signal(19)

func sleep(ctx context.Context, c *Call) int {
	for _, a := range c.Args[1:] {
		s, err := strconv.ParseFloat(a, 64)
		if err != nil {
			return c.fail(err)
		}
		if wait(ctx, time.Duration(s*float64(time.Second))) != nil {
			return 1
		}
	}
	return 0
}

func env(_ context.Context, c *Call) int {
	for _, v := range environ(c.env) {
		fmt.Fprintln(c.Stdout, v)
	}
	return 0
}

func seq(_ context.Context, c *Call) int {
	first, last := int64(1), int64(0)
	for i, a := range c.Args[1:] {
		n, ok := number(a)
		if !ok || i > 1 {
			return c.fail(errors.New("give one or two whole numbers"))
		}
		if first, last = last, n; i == 0 {
			first = 1
		}
	}
	for ; first <= last; first++ {
		if _, err := fmt.Fprintln(c.Stdout, first); err != nil {
			return 1
		}
	}
	return 0
}

// inputs calls do with each named file, or with standard input.
func (c *Call) inputs(names []string, do func(name string, r io.Reader) error) int {
	code := 0
	if len(names) == 0 {
		names = []string{"-"}
	}
	for _, name := range names {
		r, closer := c.Stdin, io.Closer(io.NopCloser(nil))
		if name != "-" {
			f, err := c.Open(name, os.O_RDONLY, 0)
			if err != nil {
				code = c.fail(err)
				continue
			}
			r, closer = f, f
		}
		if err := errors.Join(do(name, r), closer.Close()); err != nil && !errors.Is(err, errEnded) {
			code = c.fail(err)
		}
	}
	return code
}

func cat(_ context.Context, c *Call) int {
	return c.inputs(c.Args[1:], func(_ string, r io.Reader) error {
		if r == nil {
			return nil
		}
		_, err := io.Copy(c.Stdout, r)
		return err
	})
}

// part parses the arguments of head and tail: the number, and whether it counts bytes.
func (c *Call) part() (n int64, ofBytes bool, names []string, ok bool) {
	n, ok = 10, true
	args := c.Args[1:]
	for len(args) > 1 && (args[0] == "-n" || args[0] == "-c") {
		ofBytes = args[0] == "-c"
		if n, ok = number(args[1]); !ok || n < 0 {
			return 0, false, nil, false
		}
		args = args[2:]
	}
	return n, ofBytes, args, ok
}

func head(_ context.Context, c *Call) int {
	n, ofBytes, names, ok := c.part()
	if !ok {
		return c.fail(errors.New("give a number"))
	}
	return c.inputs(names, func(_ string, r io.Reader) error {
		if ofBytes {
			_, err := io.Copy(c.Stdout, io.LimitReader(r, n))
			return err
		}
		b := bufio.NewReader(r)
		for range n {
			line, err := b.ReadString('\n')
			if _, werr := io.WriteString(c.Stdout, line); err != nil || werr != nil {
				return werr
			}
		}
		return nil
	})
}

func tail(_ context.Context, c *Call) int {
	n, ofBytes, names, ok := c.part()
	if !ok {
		return c.fail(errors.New("give a number"))
	}
	return c.inputs(names, func(_ string, r io.Reader) error {
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if ofBytes {
			data = data[max(0, int64(len(data))-n):]
		} else {
			lines := bytes.SplitAfter(data, []byte("\n"))
			if len(lines[len(lines)-1]) == 0 {
				lines = lines[:len(lines)-1]
			}
			data = bytes.Join(lines[max(0, int64(len(lines))-n):], nil)
		}
		_, err = c.Stdout.Write(data)
		return err
	})
}

func wc(_ context.Context, c *Call) int {
	letters, names := c.options()
	if letters == "" {
		letters = "lwc"
	}
	return c.inputs(names, func(name string, r io.Reader) error {
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		counts := map[rune]int{'l': bytes.Count(data, []byte("\n")), 'w': len(bytes.Fields(data)), 'c': len(data)}
		var row []string
		for _, l := range "lwc" {
			if strings.ContainsRune(letters, l) {
				row = append(row, strconv.Itoa(counts[l]))
			}
		}
		if name != "-" {
			row = append(row, name)
		}
		_, err = fmt.Fprintln(c.Stdout, strings.Join(row, " "))
		return err
	})
}

func grep(_ context.Context, c *Call) int {
	letters, rest := c.options()
	if len(rest) == 0 {
		return c.fail(errors.New("give a pattern"))
	}
	pattern := rest[0]
	if strings.Contains(letters, "F") {
		pattern = regexp.QuoteMeta(pattern)
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return 2
	}
	found := 1
	code := c.inputs(rest[1:], func(_ string, r io.Reader) error {
		data, err := io.ReadAll(r)
		for line := range bytes.Lines(data) {
			line = bytes.TrimSuffix(line, []byte("\n"))
			if re.Match(line) == strings.Contains(letters, "v") {
				continue
			}
			found = 0
			if !strings.Contains(letters, "q") {
				fmt.Fprintf(c.Stdout, "%s\n", line)
			}
		}
		return err
	})
	return max(found, 2*code)
}

func sorted(_ context.Context, c *Call) int {
	letters, names := c.options()
	var lines []string
	code := c.inputs(names, func(_ string, r io.Reader) error {
		data, err := io.ReadAll(r)
		lines = append(lines, slices.Collect(strings.Lines(string(data)))...)
		return err
	})
	slices.Sort(lines)
	if strings.Contains(letters, "u") {
		lines = slices.Compact(lines)
	}
	if strings.Contains(letters, "r") {
		slices.Reverse(lines)
	}
	for _, l := range lines {
		fmt.Fprintln(c.Stdout, strings.TrimSuffix(l, "\n"))
	}
	return code
}

// tr replaces or, with -d, removes single characters.
func tr(_ context.Context, c *Call) int {
	letters, sets := c.options()
	if len(sets) == 0 || letters == "" && len(sets) != 2 || letters == "" && len(sets[0]) != len(sets[1]) {
		return c.fail(errors.New("give two sets of as many characters, or -d and one"))
	}
	data, err := io.ReadAll(c.Stdin)
	if err != nil {
		return c.fail(err)
	}
	fmt.Fprint(c.Stdout, strings.Map(func(r rune) rune {
		switch i := strings.IndexRune(sets[0], r); {
		case i < 0:
			return r
		case letters != "":
			return -1
		default:
			return rune(sets[1][i])
		}
	}, string(data)))
	return 0
}

func ls(_ context.Context, c *Call) int {
	_, names := c.options()
	if len(names) == 0 {
		names = []string{"."}
	}
	code := 0
	for _, name := range names {
		abs := absolute(c.Dir, name)
		fi, err := c.p.x.disk.stat(abs, true)
		if err != nil {
			code = c.fail(err)
			continue
		}
		if !fi.IsDir() {
			fmt.Fprintln(c.Stdout, name)
			continue
		}
		list, err := c.p.x.disk.list(abs)
		if err != nil {
			code = c.fail(err)
		}
		for _, e := range list {
			if !strings.HasPrefix(e.Name(), ".") {
				fmt.Fprintln(c.Stdout, e.Name())
			}
		}
	}
	return code
}

// each changes the file at each name.
func (c *Call) each(names []string, do func(root *os.Root, name string) error) int {
	code := 0
	for _, name := range names {
		if err := c.change(name, do); err != nil {
			code = c.fail(err)
		}
	}
	return code
}

func mkdir(_ context.Context, c *Call) int {
	letters, names := c.options()
	return c.each(names, func(root *os.Root, name string) error {
		if strings.Contains(letters, "p") {
			return root.MkdirAll(name, 0o755)
		}
		return root.Mkdir(name, 0o755)
	})
}

func rm(_ context.Context, c *Call) int {
	letters, names := c.options()
	return c.each(names, func(root *os.Root, name string) error {
		if strings.Contains(letters, "r") {
			return root.RemoveAll(name)
		}
		fi, err := root.Lstat(name)
		if err == nil && fi.IsDir() != (c.Args[0] == "rmdir") {
			return fmt.Errorf("%s: directory: %t", name, fi.IsDir())
		}
		if err == nil {
			err = root.Remove(name)
		}
		if errors.Is(err, fs.ErrNotExist) && strings.Contains(letters, "f") {
			return nil
		}
		return err
	})
}

func touch(_ context.Context, c *Call) int {
	return c.each(c.Args[1:], func(root *os.Root, name string) error {
		f, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o644)
		if err != nil {
			return err
		}
		now := time.Now()
		return errors.Join(f.Close(), root.Chtimes(name, now, now))
	})
}

// chmod accepts an octal mode, or +x, -x, +w and the like for the owner and all others.
func chmod(_ context.Context, c *Call) int {
	if len(c.Args) < 3 {
		return c.fail(errors.New("give a mode and a name"))
	}
	mode := c.Args[1]
	return c.each(c.Args[2:], func(root *os.Root, name string) error {
		if n, err := strconv.ParseUint(mode, 8, 12); err == nil {
			return root.Chmod(name, fs.FileMode(n)&fs.ModePerm)
		}
		bits, ok := map[string]fs.FileMode{"x": 0o111, "w": 0o200, "r": 0o444}[mode[len(mode)-1:]]
		fi, err := root.Stat(name)
		switch {
		case !ok || len(mode) < 2:
			return fmt.Errorf("mode %s is not known here", mode)
		case err != nil:
			return err
		case mode[len(mode)-2] == '-':
			return root.Chmod(name, fi.Mode().Perm()&^bits)
		}
		return root.Chmod(name, fi.Mode().Perm()|bits)
	})
}

func ln(_ context.Context, c *Call) int {
	letters, names := c.options()
	if letters != "s" || len(names) != 2 {
		return c.fail(errors.New("give -s, a target and a name"))
	}
	return c.each(names[1:], func(root *os.Root, name string) error { return root.Symlink(names[0], name) })
}

func mkfifo(_ context.Context, c *Call) int { return c.each(c.Args[1:], makeFIFO) }

// into returns the name of the destination of a file; to may be a directory.
func (c *Call) into(from, to string) string {
	if fi, err := c.p.x.disk.stat(absolute(c.Dir, to), true); err == nil && fi.IsDir() {
		return filepath.Join(to, filepath.Base(from))
	}
	return to
}

func mv(_ context.Context, c *Call) int {
	_, names := c.options()
	if len(names) != 2 {
		return c.fail(errors.New("give two names"))
	}
	to := c.into(names[0], names[1])
	return c.each(names[:1], func(root *os.Root, from string) error {
		other, name, err := c.p.x.disk.at(absolute(c.Dir, to))
		if err == nil && other != root {
			err = fmt.Errorf("%s: another disk", to)
		}
		if err != nil {
			return err
		}
		return root.Rename(from, name)
	})
}

// cp copies one file.
func cp(_ context.Context, c *Call) int {
	_, names := c.options()
	if len(names) != 2 {
		return c.fail(errors.New("give two names"))
	}
	return c.inputs(names[:1], func(from string, r io.Reader) error {
		f, err := c.Open(c.into(from, names[1]), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Close())
	})
}

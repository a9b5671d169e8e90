package work

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/workspace"
)

// placeFlags select the sandbox of a run's commands, and its permissions.
type placeFlags struct {
	messages.Sandbox
	memory, disk string
	cpus         float64
	pids         int
	allow        []string // hosts and protected paths
	readOnly     bool
	services     []string // NAME=COMMAND
	ready        []string // NAME=PORT or NAME=COMMAND
	outside      []string // names
}

func (f *placeFlags) add(fs *pflag.FlagSet, allows string) {
	fs.StringVar(&f.Backend, "sandbox", "", "kind of sandbox for commands, such as local or docker")
	fs.StringVar(&f.Image, "image", "", "image of the sandbox")
	fs.StringVar(&f.memory, "memory", "", "memory limit of the sandbox, such as 512m or 2g")
	fs.Float64Var(&f.cpus, "cpus", 0, "processor limit of the sandbox, such as 1.5")
	fs.StringVar(&f.disk, "disk", "", "disk limit of the sandbox, such as 2g")
	fs.IntVar(&f.pids, "pids", 0, "limit of processes and threads of the sandbox")
	fs.StringArrayVar(&f.allow, "allow", nil, allows)
	fs.BoolVar(&f.readOnly, "read-only", false, "permit only GET and HEAD to hosts of --allow")
	fs.StringArrayVar(&f.services, "service", nil, "run NAME=COMMAND beside the commands, on their loopback")
	fs.StringArrayVar(&f.ready, "ready", nil, "readiness check of a service, as NAME=PORT or NAME=COMMAND")
	fs.StringArrayVar(&f.outside, "outside", nil, "NAME of a service with state outside the files")
}

// place returns the requested sandbox, and the protected paths that are allowed.
func (f *placeFlags) place() (b messages.Sandbox, paths []string, err error) {
	b = f.Sandbox
	var limits, hosts []string
	for _, l := range []struct{ name, value string }{
		{"memory", f.memory}, {"disk", f.disk}, {"cpus", number(f.cpus)}, {"pids", number(f.pids)},
	} {
		if l.value != "" {
			limits = append(limits, l.name+"="+l.value)
		}
	}
	b.Limits = strings.Join(limits, ",")
	if _, err := sandbox.ParseLimits(b.Limits); err != nil {
		return b, nil, app.Fail(app.ExitUsage, "%v", err)
	}
	for _, list := range f.allow {
		for what := range strings.SplitSeq(list, ",") {
			switch {
			case isPath(what):
				paths = append(paths, what)
			case isHost(what):
				hosts = append(hosts, what)
			default:
				return b, nil, app.Fail(app.ExitUsage,
					"--allow %q is neither a host, as github.com or *.golang.org, without scheme, port and path, nor a path of the files, as .github/workflows", what)
			}
		}
	}
	b.Allow = strings.Join(paths, ",")
	if b.Services, err = f.servicesAsked(); err != nil {
		return b, nil, app.Fail(app.ExitUsage, "%v", err)
	}
	if len(hosts) == 0 {
		if f.readOnly {
			return b, nil, app.Fail(app.ExitUsage, "--read-only applies to hosts: name one with --allow")
		}
		return b, paths, nil
	}
	kind := sandbox.NetworkList
	if f.readOnly {
		kind = sandbox.NetworkReadOnly
	}
	b.Network = kind + ":" + strings.Join(hosts, ",")
	return b, paths, nil
}

// servicesAsked assembles the services from the flags.
func (f *placeFlags) servicesAsked() ([]sandbox.Service, error) {
	var list []sandbox.Service
	named := func(flag, name string) (*sandbox.Service, error) {
		i := slices.IndexFunc(list, func(s sandbox.Service) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("--%s %q names no service: start one with --service %s=COMMAND", flag, name, cmp.Or(name, "NAME"))
		}
		return &list[i], nil
	}
	for _, text := range f.services {
		name, line, ok := strings.Cut(text, "=")
		if !ok {
			return nil, fmt.Errorf("--service %q: write NAME=COMMAND, as web='python3 -m http.server 8000'", text)
		}
		list = append(list, sandbox.Service{Name: name, Command: shell(line)})
	}
	for _, text := range f.ready {
		name, what, _ := strings.Cut(text, "=")
		s, err := named("ready", name)
		if err != nil {
			return nil, err
		}
		switch s.Port, err = strconv.Atoi(what); {
		case err != nil:
			s.Ready = shell(what)
		case s.Port == 0:
			return nil, fmt.Errorf("--ready %q: 0 is no port; it is one of 1 to 65535, or a command", text)
		}
	}
	for _, name := range f.outside {
		s, err := named("outside", name)
		if err != nil {
			return nil, err
		}
		s.Outside = true
	}
	_, err := sandbox.ServicesText(list)
	return list, err
}

func shell(line string) []string { return []string{"sh", "-c", line} }

// isPath reports whether a text names files: a protected path, a path that begins with
// a dot, or a path in a directory that is not written as a host.
func isPath(text string) bool {
	if !fs.ValidPath(text) || text == "." || strings.ContainsAny(text, ":*\\") {
		return false
	}
	dir, _, below := strings.Cut(text, "/")
	return workspace.ProtectedAs(text) != "" || strings.HasPrefix(text, ".") || below && !isHost(dir)
}

// isHost reports whether a text is a host, or a pattern of hosts, of a list.
func isHost(text string) bool {
	_, err := sandbox.ParseNetwork(sandbox.NetworkList + ":" + text)
	return err == nil
}

// number formats a flag's number; "" for zero, the unset flag.
func number[T int | float64](n T) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

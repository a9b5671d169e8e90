package start

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/session"
)

//go:embed template
var templates embed.FS

// ownModule is the module that new modules require.
const ownModule = "github.com/rathcluster/rath"

// places are the files of a new module, by template.
var places = []struct{ template, file string }{
	{"main.go.tmpl", "main.go"},
	{"workflow.go.tmpl", "workflow.go"},
	{"workflow_test.go.tmpl", "workflow_test.go"},
	{"model.txtar.tmpl", "testdata/model.txtar"},
	{"Dockerfile.tmpl", "Dockerfile"},
	{"README.md.tmpl", "README.md"},
	{"gitignore.tmpl", ".gitignore"},
}

// Init is the command "init".
func Init(a *app.App) *cobra.Command {
	var module, replace string
	cmd := &cobra.Command{
		Use:   "init NAME",
		Short: "Write a new module: a workflow, its test, a node, a Dockerfile",
		Long: `Writes a module for your own workflow to the new directory NAME: a workflow with
two agents and a tool, its tests with a scripted model, the main of a node with
the workflow, a Dockerfile and a README. A rath built from a checkout makes the
module use this checkout.`,
		Example: `  rath init review
  rath init review --module example.com/me/review
  rath init review --replace ../rath     against a checkout of rath`,
		Args: app.Exactly(1, "the name of a directory"),
		RunE: func(_ *cobra.Command, args []string) error { return newModule(a, args[0], module, replace) },
	}
	cmd.Flags().StringVar(&module, "module", "", "path of the module (default NAME)")
	cmd.Flags().StringVar(&replace, "replace", "", "use the checkout of rath in this directory")
	return cmd
}

var modulePath = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._~/-]*$`)

func newModule(a *app.App, dir, module, replace string) error {
	name := filepath.Base(filepath.Clean(dir))
	if err := session.ValidID("workflow", name); err != nil {
		return app.Fail(app.ExitUsage, "init: %w; the directory's name becomes the workflow's", err)
	}
	if module == "" {
		module = name
	}
	if !modulePath.MatchString(module) || strings.Contains(module, "//") || strings.HasSuffix(module, "/") {
		return app.Fail(app.ExitUsage, "init: %q is no module path; want something like example.com/me/%s", module, name)
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return app.Fail(app.ExitConflict, "init: %s holds files already; name a new directory", dir)
	}
	info, _ := debug.ReadBuildInfo()
	if replace == "" && inCheckout(info, node.Version()) {
		replace = checkout()
	}
	var from string
	if replace != "" {
		abs, err := filepath.Abs(replace)
		if err != nil {
			return fmt.Errorf("init: %w", err)
		}
		from = filepath.ToSlash(abs)
	}
	gomod, gosum, err := moduleFiles(module, replace, required(info, node.Version()))
	if err != nil {
		return err
	}
	files := map[string][]byte{"go.mod": gomod}
	if len(gosum) > 0 {
		files["go.sum"] = gosum
	}
	about := struct{ Name, Module, Workflow, Checkout string }{name, module, name, from}
	for _, p := range places {
		text, err := templates.ReadFile(path.Join("template", p.template))
		if err != nil {
			return err
		}
		t, err := template.New(p.file).Parse(string(text))
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if err := t.Execute(&b, about); err != nil {
			return err
		}
		files[p.file] = b.Bytes()
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		target := filepath.Join(dir, filepath.FromSlash(file))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return fmt.Errorf("init: %w", err)
		}
		if err := os.WriteFile(target, files[file], 0o644); err != nil {
			return fmt.Errorf("init: %w", err)
		}
		a.Out.Println(filepath.ToSlash(target))
	}
	a.Remark("\nnext  cd %s", app.ShellWord(dir))
	if replace == "" {
		a.Remark("      go mod tidy")
	}
	a.Remark("      go test ./...")
	a.Remark("      go run .")
	return nil
}

// unpublished matches Go's versions of an untagged commit and of uncommitted changes.
var unpublished = regexp.MustCompile(`\d{14}-[0-9a-f]{12}|\+dirty`)

// inCheckout reports whether a program of this version was built in a checkout: Go
// records the state of the repository there, and not of a downloaded module.
func inCheckout(info *debug.BuildInfo, version string) bool {
	return version == "devel" || info != nil && slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "vcs" })
}

// required returns the version under which a module can require this program's source,
// "" if there is none: the commit of a checkout may be unpublished.
func required(info *debug.BuildInfo, version string) string {
	if version == "devel" || inCheckout(info, version) && unpublished.MatchString(version) {
		return ""
	}
	return version
}

// checkout returns the directory of this program's source, "" if it does not exist, or
// is unknown because of -trimpath.
func checkout() string {
	_, file, _, ok := runtime.Caller(0)
	dir := filepath.Dir(file)
	for range 4 { // cmd/rath/internal/start
		dir = filepath.Dir(dir)
	}
	if !ok || !filepath.IsAbs(dir) {
		return ""
	}
	if text, err := os.ReadFile(filepath.Join(dir, "go.mod")); err != nil || !bytes.HasPrefix(text, []byte("module "+ownModule+"\n")) {
		return ""
	}
	return dir
}

// moduleFiles returns go.mod and go.sum. With a checkout both list the dependencies of
// its packages, so that nothing has to be downloaded or tidied first; else go.mod
// requires a version.
func moduleFiles(module, replace, version string) (gomod, gosum []byte, err error) {
	var b strings.Builder
	fmt.Fprintf(&b, "module %s\n\ngo 1.26.0\n\n", module)
	if replace == "" {
		if version == "" {
			return nil, nil, app.Fail(app.ExitUsage, "init: this rath (%s) is not a release and has no path to its checkout; "+
				"name the checkout with --replace DIR, or build rath there without -trimpath", node.Version())
		}
		fmt.Fprintf(&b, "require %s %s\n", ownModule, version)
		return []byte(b.String()), nil, nil
	}
	checkout, err := filepath.Abs(replace)
	if err != nil {
		return nil, nil, fmt.Errorf("init: %w", err)
	}
	theirs, err := os.ReadFile(filepath.Join(checkout, "go.mod"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, app.Fail(app.ExitNotFound, "init: %s holds no go.mod; --replace names a checkout of %s", replace, ownModule)
	case err != nil:
		return nil, nil, fmt.Errorf("init: %w", err)
	case !bytes.HasPrefix(theirs, []byte("module "+ownModule+"\n")):
		return nil, nil, app.Fail(app.ExitUsage, "init: %s is another module than %s", replace, ownModule)
	}
	fmt.Fprintf(&b, "require %s v0.0.0\n\nreplace %s => %s\n\n", ownModule, ownModule, modString(checkout))
	inside := false
	for line := range strings.Lines(string(theirs)) {
		switch text := strings.TrimSpace(line); {
		case strings.HasPrefix(text, "require ("):
			inside = true
			b.WriteString(line)
		case inside && text != ")" && text != "" && !strings.Contains(text, "//"):
			b.WriteString(strings.TrimRight(line, "\r\n") + " // indirect\n")
		case inside:
			b.WriteString(line)
			inside = text != ")"
		case strings.HasPrefix(text, "require "):
			b.WriteString(line)
		}
	}
	gosum, err = os.ReadFile(filepath.Join(checkout, "go.sum"))
	if err != nil {
		return nil, nil, fmt.Errorf("init: %w", err)
	}
	return []byte(b.String()), gosum, nil
}

// modString quotes a path for go.mod if necessary.
func modString(s string) string {
	if strings.ContainsAny(s, " \t\"'`,;()[]{}") {
		return fmt.Sprintf("%q", s)
	}
	return filepath.ToSlash(s)
}

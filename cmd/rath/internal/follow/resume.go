package follow

import (
	"github.com/spf13/pflag"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// NodeFlags are the settings of a node that a command starts for a run. The run
// needs them again when it is resumed.
type NodeFlags struct {
	Script string
	Unsafe bool
}

// Add adds the flags to those of a command.
func (f *NodeFlags) Add(fs *pflag.FlagSet) {
	fs.StringVar(&f.Script, "script", "", "answer model calls from this txtar file")
	fs.BoolVar(&f.Unsafe, "unsafe", false, "let the model run unconfined commands")
}

// ResumeWith returns the command that resumes a run in a node of its own, with the
// settings of the former node; o is nil if they are unknown.
func ResumeWith(a *app.App, id run.ID, o *NodeFlags) string {
	args := []string{"resume", string(id)}
	if o != nil && o.Script != "" {
		args = append(args, "--script", app.ShellWord(o.Script))
	}
	if o != nil && o.Unsafe {
		args = append(args, "--unsafe")
	}
	return a.Hint(args...)
}

// asBegun names the node's flags that only the command that started the run has.
const asBegun = "its original --script and --unsafe"

// GoesOn prints that a run continues after an action on it, or the command that
// continues it.
func GoesOn(a *app.App, s *app.System, done string, r *messages.RunInfo) {
	switch {
	case r.Quarantine != "":
		a.Remark("%s; run %s stays quarantined (%s) until %q", done, r.Run, term.Line(r.Quarantine, 200), a.Hint("cluster", "release", string(r.Run), "--reason", "TEXT"))
	case s.Own():
		a.Remark("%s; no node runs here: resume with %q, and %s", done, ResumeWith(a, r.Run, nil), asBegun)
	default:
		a.Remark("%s; run %s continues", done, r.Run)
	}
}

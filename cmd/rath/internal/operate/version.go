package operate

import (
	"runtime"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/session"
)

// Version is the command "version".
func Version(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Show the release and the formats it reads and writes",
		Example: "  rath version\n  rath version --format json",
		Args:    app.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version string `json:"version"`
				Go      string `json:"go"`
				OS      string `json:"os"`
				Arch    string `json:"arch"`
				Commit  int    `json:"commit_format"`
				Session int    `json:"session_schema"`
				Run     int    `json:"run_schema"`
				Lineage int    `json:"lineage_schema"`
				Dossier int    `json:"dossier_format"`
			}{node.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH, commitlog.Format, session.Schema, journal.Schema, lineage.Schema, dossier.Format}
			if done, err := app.EmitOne(a, v); done {
				return err
			}
			a.Out.Printf("rath %s  %s %s/%s\n", v.Version, v.Go, v.OS, v.Arch)
			a.Out.Printf("formats: commit %d, session %d, run %d, lineage %d, dossier %d\n",
				v.Commit, v.Session, v.Run, v.Lineage, v.Dossier)
			return nil
		},
	}
}

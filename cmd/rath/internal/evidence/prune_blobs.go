package evidence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
	natsarchive "github.com/rathcluster/rath/internal/nats/archive"
)

// leastGrace is the least time that other writers to the store have between storing a
// blob and referring to it.
const leastGrace = time.Hour

// sweptBlobs counts the blobs that were found and removed.
type sweptBlobs struct {
	Stored       int           `json:"stored"`
	StoredBytes  int64         `json:"stored_bytes"`
	Named        int           `json:"named"`
	Young        int           `json:"young"`
	Removed      int           `json:"removed"`
	RemovedBytes int64         `json:"removed_bytes"`
	DryRun       bool          `json:"dry_run,omitempty"`
	Missing      []blob.Digest `json:"missing"`
}

// sweepOptions reads the options of the removal of blobs.
func sweepOptions(a *app.App, f *pruneFlags) (*natsarchive.SweepOptions, error) {
	if f.older != "" || f.out != "" || len(f.keep) > 0 {
		return nil, errors.New("--blobs removes blobs and archives no tree: use --older-than, --keep and --out in a separate prune")
	}
	grace, err := lineage.ParseAge(f.grace)
	if err == nil && grace < leastGrace {
		err = fmt.Errorf("%q is too short for writers to name their blobs: at least %s", f.grace, leastGrace)
	}
	if err != nil {
		return nil, fmt.Errorf("--grace: %w", err)
	}
	o := &natsarchive.SweepOptions{Grace: grace, DryRun: f.dry}
	if a.Config.Tenant.Given() {
		o.Tenant = a.Tenant()
	}
	return o, nil
}

// sweep removes unreferenced blobs.
func sweep(ctx context.Context, a *app.App, f *pruneFlags, o *natsarchive.SweepOptions) (err error) {
	r := app.ToPurge
	if o.DryRun {
		r = app.ToRead
	}
	s, err := a.OpenStreams(ctx, r, f.monitor)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	got, err := s.Conn.Archive.SweepBlobs(ctx, o)
	if err != nil {
		return err
	}
	v := sweptBlobs{
		Stored: got.Stored, StoredBytes: got.StoredBytes, Named: got.Named, Young: got.Young, Removed: got.Removed, RemovedBytes: got.RemovedBytes,
		DryRun: o.DryRun, Missing: append([]blob.Digest{}, got.Missing...),
	}
	if a.AsJSON() {
		if err := a.WriteJSON(v); err != nil {
			return err
		}
	} else {
		unnamed, what := "REMOVED", "removed"
		if o.DryRun {
			unnamed, what = "UNNAMED", "would be removed:"
		}
		a.Out.Rows([]string{"BLOBS", "BYTES", "NAMED", "YOUNG", unnamed}, [][]string{{
			excerpt.Thousands(int64(v.Stored)), excerpt.Thousands(v.StoredBytes), excerpt.Thousands(int64(v.Named)), excerpt.Thousands(int64(v.Young)), excerpt.Thousands(int64(v.Removed)),
		}})
		a.Remark("%s %s, %s", what, view.Counted(int64(v.Removed), "blob"), view.Counted(v.RemovedBytes, "byte"))
	}
	if n := len(v.Missing); n > 0 {
		return app.Fail(app.ExitPartial, "%s with references cannot be read, such as %s: their data is lost unless an archive has it, see %q", view.Counted(int64(n), "blob"), v.Missing[0].Short(), a.Hint("cluster", "import", "--help"))
	}
	return nil
}

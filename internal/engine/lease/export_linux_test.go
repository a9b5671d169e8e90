package lease

import (
	"context"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

// Open makes dir a fork of a head.
func (f *Forks) Open(ctx context.Context, b blob.Store, t session.Tenant, head blob.Digest, dir string) (workspace.Take, func() error, error) {
	return f.open(ctx, b, sharedHead{t, head}, dir)
}

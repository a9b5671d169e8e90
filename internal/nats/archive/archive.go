package archive

import "github.com/rathcluster/rath/internal/nats/project"

// Archive takes sessions out of streams, and brings them back. It is safe for
// concurrent use.
type Archive struct{ *project.Projections }

// NewArchive returns the archive of what p is derived from.
func NewArchive(p *project.Projections) *Archive { return &Archive{p} }

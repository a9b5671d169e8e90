package natsbus

// Archive takes sessions out of streams, and brings them back. It is safe for
// concurrent use.
type Archive struct{ *Projections }

// NewArchive returns the archive of what p is derived from.
func NewArchive(p *Projections) *Archive { return &Archive{p} }

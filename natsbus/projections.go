package natsbus

// Projections are what is derived from logs: lineage, results, and how far they are. It
// is safe for concurrent use.
type Projections struct {
	*Logs
	// watermarks is how far the relays of this process are.
	watermarks *watermarks
}

// NewProjections returns the projections of l.
func NewProjections(l *Logs) *Projections {
	return &Projections{Logs: l, watermarks: newWatermarks()}
}

//go:build off_round

package protection

// Round: what a server says leaves it after the round that syncs what it had stored.
const Round = false

//go:build off_openset_tail

package protection

// OpenSetTail: a relay that takes a partition reads what came after its open set was stored.
const OpenSetTail = false

//go:build off_claim_before_read

package protection

// ClaimBeforeRead: a worker claims a log before it reads its journal, so that no other worker adds to it afterwards.
const ClaimBeforeRead = false

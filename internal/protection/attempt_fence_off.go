//go:build off_attempt_fence

package protection

// AttemptFence: an attempt that a later one superseded records nothing but evidence.
const AttemptFence = false

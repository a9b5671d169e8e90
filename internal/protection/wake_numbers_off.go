//go:build off_wake_numbers

package protection

// WakeNumbers: a run that waits is claimed only after what it waits for has come.
const WakeNumbers = false

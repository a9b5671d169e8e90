//go:build !off_dispatch_seen

package protection

// DispatchSeen: a dispatch is decided by the log: a claim that finds another attempt than the relay saw is refused.
const DispatchSeen = true

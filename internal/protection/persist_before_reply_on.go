//go:build !off_persist_before_reply

package protection

// PersistBeforeReply: a request is answered after its commit is durable.
const PersistBeforeReply = true

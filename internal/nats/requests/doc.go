// Package requests implements the operations of any NATS client, and all of package
// client's: requests, and subscriptions to messages published for everybody in a tenant.
// Package api answers.
//
// Files, the lowest first: requests, blobs, commits, known, nodes, deadletters, tools, memory,
// import, repair.
package requests

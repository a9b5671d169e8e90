// Package requests is what any NATS client may do, and all that package client does: requests,
// and subscriptions to what is published for everybody in a tenant. Package api answers.
//
// Files, the lowest first: requests, blobs, commits, known, nodes, deadletters, tools, memory,
// import, repair.
package requests

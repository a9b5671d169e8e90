// Package workflows groups the workflows that come with Rath: the router's auto and
// fanout, the notifications, and the demo.
package workflows

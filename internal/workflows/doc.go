// Package workflows groups the workflows that come with Rath: the router's auto and
// fanout, and the demo.
package workflows

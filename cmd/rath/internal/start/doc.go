// Package start has the commands to start with: a demo, a node over a directory, a new
// module.
package start

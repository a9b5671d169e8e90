// Package sandbox groups the internals of the public package sandbox: directories,
// processes, their confinement, containers, and the proxy of a sandbox.
package sandbox

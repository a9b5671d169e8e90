// Package app is the frame of every command: how it was started, what is configured,
// which system it works on, how it writes, and which exit code an error has.
package app

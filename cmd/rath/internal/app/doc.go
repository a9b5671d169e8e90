// Package app is the frame of every command: how it was started, what is configured,
// which system it works on, how it writes, and which exit code an error has.
//
// Files, the lowest first: app, exit, settings, natscontext, wait_linux, ask, configfile,
// hint, system, arguments, streams, workflows, connect, output, input,
// progress.
package app

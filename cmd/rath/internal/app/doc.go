// Package app is the frame of every command: its invocation, its configuration, its
// system, its output, and the exit codes of errors.
//
// Files, the lowest first: app, exit, settings, natscontext, wait_linux, ask, configfile,
// hint, system, arguments, streams, workflows, connect, output, input,
// progress.
package app

// Package rules decides which calls of tools run, which ones a person has to approve, and
// which ones are refused.
//
// A [List] is an operator's list of rules. Each rule has a verdict and conditions: the tool,
// the agent, the command, the path, the host, an amount. Of all rules that match a call the
// strictest decides: refuse before ask, ask before allow.
//
// The two directions are read differently. A rule that allows must match the whole call: each
// simple command of a command line, each path, by the literal words that the shell would
// execute. A rule that asks or refuses matches if a part of the call does. A command line
// with a part that this package cannot read literally, such as a substitution, is never
// allowed by a rule about commands. A refusal is no confinement: a program can do in its own
// code whatever a command line does not show. Confinement is the work of the sandbox.
//
// Files, the lowest first: verdict, program, shell, pattern, call,
// rule, list, default.
package rules

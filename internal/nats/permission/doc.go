// Package permission is the one list of the permissions of NATS users. It is the source of
// the embedded server, the configuration that operators are given, the chart of accounts,
// the check at a node's start and the tests.
//
// Files, the lowest first: role (the roles, and which verb of control is whose),
// permission (what each role needs), accounts (the configuration of a server), nsc (the
// same as commands of nsc).
package permission

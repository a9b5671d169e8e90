// Package listfile reads the lists that an operator writes for a node, such as that of
// its models and that of its MCP servers: YAML in which a name that is not known is an
// error with its line and a remedy, and in which secrets are named and never held.
package listfile

// Package listfile reads an operator's lists for a node, such as its models and its MCP
// servers. The lists are YAML. An unknown name is an error with its line and a remedy.
// Secrets are named and never contained.
package listfile

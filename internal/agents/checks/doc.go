// Package checks runs an operator's commands after a model has changed files, such as a
// compiler or a linter, and adds their output to the result of the call. The model then
// learns of its mistake with the answer to the edit that made it.
//
// Files, the lowest first: list, check.
package checks

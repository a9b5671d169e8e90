// Package filelock takes the lock of a file, which all processes of a machine see, and waits
// for processes that have a file open for writing. A lock ends with the process that has
// it, however that ends.
package filelock

// Package filelock takes the lock of a file, which all processes of a machine see. It ends
// with the process that has it, however that ends.
package filelock

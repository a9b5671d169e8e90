// Package proc identifies the processes of this machine: a number is reused, a number with
// the start time of its process is not, as long as the machine runs. Leases record with it
// which process opened a sandbox, and whether that process still lives.
package proc

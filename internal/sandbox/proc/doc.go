// Package proc tells the processes of this machine apart: a number is given again, a
// number with the time at which its process started is not, as long as the machine runs.
// Leases say with it which process opened a sandbox, and whether that one still lives.
package proc

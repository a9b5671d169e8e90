// Package work has the commands that start, answer and control runs.
//
// Files, the lowest first: branch, upload, skills, task, attach, fanout, cancel, place,
// run, workspace, memory, memorytree, resource, questions, answer, fork, merge, applied,
// submitmany, finish, submit, rewind, resume, apply, message, event, rerun.
package work

// Package operate has the commands for operators: nodes, tools, dead letters,
// quarantines, budgets, streams, load, and this installation.
//
// Files, the lowest first: completion, provision, config, doctor, doctor_nodes, quarantine, permissions,
// bench, deadletters, pod, key, quota, token, tools, version, nodes, rebudget, repair, drain, node.
package operate

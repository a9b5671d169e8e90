// Package inspect has the read-only commands: they show runs, sessions and files, and
// their origins.
//
// Files, the lowest first: steps, target, live, watch, top, find, tree, tail, diff,
// followsteps, impact, replay, why, instructions, workflows, ps, show.
package inspect

// Package inspect has the commands that look: at runs, sessions, files, and what they
// came of. They change nothing.
//
// Files, the lowest first: steps, target, live, watch, top, find, tree, tail, diff,
// followsteps, impact, replay, why, instructions, workflows, ps, show.
package inspect

// Package start has the commands to start with: a demo, a node over a directory, a new
// module.
//
// Files, the lowest first: modellist, modeltest, notices, models, dev, open, init, crash, demo, demo_text,
// demo_fleet, mcp.
package start

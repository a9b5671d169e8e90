// Package roster reads agents that people describe in Markdown files: front matter in YAML
// with name, description, tools and model, and a body that is the prompt.
//
// An operator's directory is read whole, and each file must be valid. The files of a
// workspace come from anybody: invalid ones are left out with a reason, and what they
// describe is at most text, which [Agent.Quoted] quotes.
//
// Files, the lowest first: agent, parse, read.
package roster

// Package pages serves the pages of a tenant to browsers: questions, runs, sessions,
// files and the fleet. It renders html/template from the data that the command line
// shows; a script adds liveness alone, so that each page works without one.
//
// Every text of an agent is data. [shown] masks credentials, escapes markup, and makes
// hidden characters visible. The policy of each page permits its own script and sheet
// and no other, and one Trusted Types policy, by which the script takes in fragments that
// the templates have made.
//
// The caller of a request comes from package access, which also limits rates and checks
// hosts, origins and the tokens of forms.
package pages

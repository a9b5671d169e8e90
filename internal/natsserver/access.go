package natsserver

import (
	"crypto/rand"
	"fmt"
	"strings"
	"text/template"
)

const (
	nodeUser     = "node"
	operatorUser = "operator"
)

func newPassword() string { return rand.Text() }

// access puts clients without credentials into an account of their own. They
// reach the account that holds the streams only through the services it
// exports, and see only the streams of messages it exports. Permissions alone
// would not do: a request names the subject of its answer, so a client could
// have a node, or JetStream itself, publish an answer into an event stream.
// Across accounts an answer can only end in the asker's account.
//
// The node may not delete or purge what is stored; an operator may.
var access = template.Must(template.New("access").Parse(`
accounts {
  RATH {
    jetstream: enabled
    users: [
      {user: {{.Node}}, password: "{{.NodePassword}}", permissions: {
        publish: {deny: ["$JS.API.STREAM.DELETE.>", "$JS.API.STREAM.PURGE.>", "$JS.API.STREAM.MSG.DELETE.>"]}
      }}
      {user: {{.Operator}}, password: "{{.OperatorPassword}}"}
    ]
    exports: [
      {service: "rath.task.default.*"}
      {service: "rath.ctl.default.>"}
      {service: "rath.query.default.>", response_type: stream}
      {stream: "rath.run.default.>"}
      {stream: "rath.tail.default.>"}
    ]
  }
  CLIENTS {
    users: [
      {user: default, password: "{{.DefaultPassword}}", permissions: {
        publish: {allow: ["rath.task.default.*", "rath.ctl.default.>", "rath.query.default.>"]}
        subscribe: {allow: ["rath.run.default.>", "rath.tail.default.>", "_INBOX.>"]}
      }}
    ]
    imports: [
      {service: {account: RATH, subject: "rath.task.default.*"}}
      {service: {account: RATH, subject: "rath.ctl.default.>"}}
      {service: {account: RATH, subject: "rath.query.default.>"}}
      {stream: {account: RATH, subject: "rath.run.default.>"}}
      {stream: {account: RATH, subject: "rath.tail.default.>"}}
    ]
  }
}
no_auth_user: default
`))

// accessConfig is the part of the server's configuration that says who may do
// what.
func accessConfig(nodePassword, operatorPassword string) (string, error) {
	for _, p := range []string{nodePassword, operatorPassword} {
		if strings.ContainsAny(p, "\"\\\n") {
			return "", fmt.Errorf("natsserver: a password may not contain quotes, backslashes or line ends")
		}
	}
	var b strings.Builder
	err := access.Execute(&b, map[string]string{
		"Node": nodeUser, "NodePassword": nodePassword,
		"Operator": operatorUser, "OperatorPassword": operatorPassword,
		// Nobody logs in as the default user by name.
		"DefaultPassword": newPassword(),
	})
	return b.String(), err
}

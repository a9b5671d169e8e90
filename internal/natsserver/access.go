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
	toolUser     = "tool"
)

func newPassword() string { return rand.Text() }

// access puts clients without credentials into an account of their own. They
// reach the account that holds the streams only through the services it
// exports, and see only the streams of messages it exports. Permissions alone
// would not do: a request names the subject of its answer, so a client could
// have a node, or JetStream itself, publish an answer into an event stream.
// Across accounts an answer can only end in the asker's account.
//
// A tool is a client that may also announce tools and answer their calls: a
// service in the other direction, exported by the clients' account. A client
// without credentials could otherwise take the place of any tool.
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
    imports: [
      {service: {account: CLIENTS, subject: "rath.tool.default.*"}}
    ]
  }
  CLIENTS {
    users: [
      {user: default, password: "{{.DefaultPassword}}", permissions: {
        publish: {allow: ["rath.task.default.*", "rath.ctl.default.>", "rath.query.default.>"], deny: ["rath.ctl.default.tool.>"]}
        subscribe: {allow: ["rath.run.default.>", "rath.tail.default.>", "_INBOX.>"]}
      }}
      {user: {{.Tool}}, password: "{{.ToolPassword}}", permissions: {
        publish: {allow: ["rath.task.default.*", "rath.ctl.default.>", "rath.query.default.>"]}
        subscribe: {allow: ["rath.run.default.>", "rath.tail.default.>", "rath.tool.default.*", "_INBOX.>"]}
        allow_responses: {max: 1, expires: "10m"}
      }}
    ]
    exports: [
      {service: "rath.tool.default.*"}
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
func accessConfig(nodePassword, operatorPassword, toolPassword string) (string, error) {
	for _, p := range []string{nodePassword, operatorPassword, toolPassword} {
		if strings.ContainsAny(p, "\"\\\n") {
			return "", fmt.Errorf("natsserver: a password may not contain quotes, backslashes or line ends")
		}
	}
	var b strings.Builder
	err := access.Execute(&b, map[string]string{
		"Node": nodeUser, "NodePassword": nodePassword,
		"Operator": operatorUser, "OperatorPassword": operatorPassword,
		"Tool": toolUser, "ToolPassword": toolPassword,
		// Nobody logs in as the default user by name.
		"DefaultPassword": newPassword(),
	})
	return b.String(), err
}

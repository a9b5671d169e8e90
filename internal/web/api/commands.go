package api

// Command is a command of rath beside the routes that serve the same.
type Command struct {
	Name string
	// Routes are rows of the table, as "GET /api/v1/runs". A command without any has a
	// Reason.
	Routes []string
	Reason string
}

// The reasons why a command has no route.
const (
	local    = "it works on files or processes of the caller's machine"
	store    = "it appends to the logs of the store itself, which nodes alone do for others"
	operator = "it works on the streams, the accounts or the quotas, with the credentials of an operator"
	helps    = "it explains or configures the command line"
)

// without are the commands that no row of the table serves.
var without = []Command{
	{Name: "demo", Reason: local},
	{Name: "dev", Reason: local},
	{Name: "init", Reason: local},
	{Name: "models test", Reason: local},
	{Name: "models import", Reason: local},
	{Name: "models serve", Reason: local},
	{Name: "mcp ls", Reason: "it reads the list of MCP servers of a machine"},
	{Name: "mcp test", Reason: local},
	{Name: "mcp add", Reason: local},
	{Name: "mcp login", Reason: local},
	{Name: "session fork", Reason: store},
	{Name: "session merge", Reason: store},
	{Name: "workspace merge", Reason: store},
	{Name: "memory import", Reason: local},
	{Name: "verify", Reason: "it checks a file without a server"},
	{Name: "cluster provision", Reason: operator},
	{Name: "cluster key", Reason: operator},
	{Name: "cluster prune", Reason: operator},
	{Name: "cluster audit", Reason: operator},
	{Name: "cluster bench", Reason: operator},
	{Name: "cluster quota set", Reason: operator},
	{Name: "cluster quota open", Reason: operator},
	{Name: "cluster quota remove", Reason: operator},
	{Name: "cluster tools withdraw", Reason: "only a program with tools, over NATS, announces and withdraws them"},
	{Name: "node", Reason: local},
	{Name: "router", Reason: local},
	{Name: "open", Reason: local},
	{Name: "token create", Reason: operator},
	{Name: "token ls", Reason: operator},
	{Name: "token revoke", Reason: operator},
	{Name: "doctor config", Reason: helps},
	{Name: "doctor config init", Reason: helps},
	{Name: "doctor completion", Reason: helps},
	{Name: "version", Reason: helps},
}

// Commands returns each command of rath beside its routes, or the reason why it has none,
// in no order.
func (a *API) Commands() []Command {
	at := map[string]int{}
	var all []Command
	for i := range a.routes {
		rt := &a.routes[i]
		for _, name := range rt.commands {
			n, ok := at[name]
			if !ok {
				n = len(all)
				at[name] = n
				all = append(all, Command{Name: name})
			}
			all[n].Routes = append(all[n].Routes, rt.method+" "+rt.path)
		}
	}
	return append(all, without...)
}

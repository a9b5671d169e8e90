package node

import (
	"flag"
	"strconv"
	"strings"
)

// flags adds the flags of the pages and the API of a router.
func (o *HTTP) flags(flags *flag.FlagSet, env func(string) string) {
	flags.StringVar(&o.Web, "http", env("RATH_HTTP"), "`address` of the pages and the API; a port alone is this machine only (RATH_HTTP)")
	flags.StringVar(&o.URL, "http-url", env("RATH_HTTP_URL"), "`URL` under which browsers reach -http, such as https://rath.example.com (RATH_HTTP_URL)")
	o.Insecure, _ = strconv.ParseBool(env("RATH_HTTP_INSECURE"))
	flags.BoolVar(&o.Insecure, "http-insecure", o.Insecure, "accept an -http-url off this machine that is not https (RATH_HTTP_INSECURE=true)")
	flags.StringVar(&o.Gateways, "gateways", env("RATH_GATEWAYS"), "`directory` with the NATS credentials of each tenant's gateway: TENANT.creds, TENANT.nkey or TENANT.login (RATH_GATEWAYS)")
	flags.StringVar(&o.OIDC, "oidc", env("RATH_OIDC"), "`file` with the OpenID Connect provider of the pages, and who has which access (RATH_OIDC)")
	origins := func(list string) error {
		o.Origins = strings.FieldsFunc(list, func(c rune) bool { return c == ',' || c == ' ' })
		return nil
	}
	_ = origins(env("RATH_HTTP_ORIGINS")) // it accepts any text
	flags.Func("http-origins", "`origins` of other sites whose scripts may use the API, with commas between (RATH_HTTP_ORIGINS)", origins)
}

{{/* What internal/nats/permission says; see the head of the file. */}}
{{- define "accounts.said" -}}
{{- .Files.Get "files/permissions.yaml" -}}
{{- end -}}

{{/* Lines of it, each with an indent: dict "root" $ "text" … "indent" 6 "tenant" "acme" "user" "ana" */}}
{{- define "accounts.lines" -}}
{{- $all := . -}}
{{- $generation := int .root.Values.generation | toString -}}
{{- range splitList "\n" (trimSuffix "\n" .text) -}}
{{- $line := . | replace "<tenant>" $all.tenant | replace "<user>" $all.user | replace "<generation>" $generation | indent (int $all.indent) -}}
{{- if contains "<partition>" $line -}}
{{- range until (int $all.root.Values.partitions) }}
{{ $line | replace "<partition>" (toString .) }}
{{- end -}}
{{- else }}
{{ $line }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The users of an account: dict "root" $ "said" … "users" .users "tenant" "acme" */}}
{{- define "accounts.users" -}}
{{- $all := . -}}
{{- range $user := .users -}}
{{- $login := printf "user: \"%s\", password: $%s" .name (get . "passwordKey") -}}
{{- with get . "bcrypt" -}}{{- $login = printf "user: \"%s\", password: \"%s\"" $user.name . -}}{{- end -}}
{{- with get . "nkey" -}}{{- $login = printf "nkey: %s" . -}}{{- end }}
      {{ printf "{%s, permissions: {" $login }}
{{- include "accounts.lines" (dict "root" $all.root "text" (get $all.said.roles .role).permissions "indent" 8 "tenant" $all.tenant "user" .name) }}
      }}
{{- end -}}
{{- end -}}

{{- define "accounts.config" -}}
{{- $said := include "accounts.said" . | fromYaml -}}
accounts {
  RATH {
    jetstream: enabled
    users: [
{{- include "accounts.users" (dict "root" . "said" $said "users" .Values.users "tenant" "") }}
    ]
    exports: [
{{- range .Values.tenants -}}
{{- include "accounts.lines" (dict "root" $ "text" $said.exports "indent" 6 "tenant" .name "user" "") }}
{{- end }}
    ]
    imports: [
{{- range .Values.tenants -}}
{{- include "accounts.lines" (dict "root" $ "text" $said.imports "indent" 6 "tenant" .name "user" "") }}
{{- end }}
    ]
  }
{{- range .Values.tenants }}
  CLIENTS_{{ .name }} {
    users: [
{{- include "accounts.users" (dict "root" $ "said" $said "users" .users "tenant" .name) }}
    ]
    exports: [
{{- include "accounts.lines" (dict "root" $ "text" $said.tenantExports "indent" 6 "tenant" .name "user" "") }}
    ]
    imports: [
{{- include "accounts.lines" (dict "root" $ "text" $said.tenantImports "indent" 6 "tenant" .name "user" "") }}
    ]
  }
{{- end }}
}
{{- end -}}

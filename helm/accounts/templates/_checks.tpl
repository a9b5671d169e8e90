{{/* What no schema says in plain words. */}}

{{/* Users of one account: dict "users" .users "of" "tenant acme" "roles" (list "submit" …) "seen" dict */}}
{{- define "accounts.checkUsers" -}}
{{- $all := . -}}
{{- range .users -}}
{{- $who := printf "user %q of %s" (toString .name) $all.of -}}
{{- if not (regexMatch "^[A-Za-z0-9_-]{1,64}$" (toString .name)) -}}
{{- fail (printf "%s: a user's name is 1 to 64 of A-Z a-z 0-9 _ -: it is a part of the subjects that the user may publish" $who) -}}
{{- end -}}
{{- if eq .name "session" -}}
{{- fail (printf "%s: in subjects that stands for a session: give the user another name" $who) -}}
{{- end -}}
{{- if and $all.tenant (eq .name "operator") -}}
{{- fail (printf "%s: it stands for who works on the store: give a user of a tenant another name" $who) -}}
{{- end -}}
{{- with get $all.seen .name -}}
{{- fail (printf "%s: %s has a user of that name: a server knows users by their names, give one of the two another" $who .) -}}
{{- end -}}
{{- $_ := set $all.seen .name $all.of -}}
{{- if not (has .role $all.roles) -}}
{{- fail (printf "%s: role %q: want one of %s" $who (toString .role) (join ", " $all.roles)) -}}
{{- end -}}
{{- $logins := compact (list (get . "passwordKey") (get . "bcrypt") (get . "nkey")) -}}
{{- if not $logins -}}
{{- fail (printf "%s has no way to log in: give it passwordKey (a key of the secret with passwords), bcrypt (a hash) or nkey (a public key)" $who) -}}
{{- end -}}
{{- if gt (len $logins) 1 -}}
{{- fail (printf "%s has %d ways to log in: leave one of passwordKey, bcrypt and nkey" $who (len $logins)) -}}
{{- end -}}
{{- with get . "passwordKey" -}}
{{- if not (regexMatch "^[A-Za-z_][A-Za-z0-9_]*$" .) -}}
{{- fail (printf "%s: passwordKey %q: the servers read it from their environment: letters, digits and _, no digit first" $who .) -}}
{{- end -}}
{{- end -}}
{{- with get . "bcrypt" -}}
{{- if not (regexMatch "^\\$2[aby]\\$[0-9]{2}\\$[./A-Za-z0-9]{53}$" .) -}}
{{- fail (printf "%s: bcrypt is no hash: `nats server passwd` prints one, which begins with $2a$" $who) -}}
{{- end -}}
{{- end -}}
{{- with get . "nkey" -}}
{{- if not (regexMatch "^U[A-Z2-7]{55}$" .) -}}
{{- fail (printf "%s: nkey is no public key of a user: `nk -gen user -pubout` prints one in its second line, which begins with U" $who) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "accounts.checks" -}}
{{- $seen := dict -}}
{{- $roles := (include "accounts.said" . | fromYaml).roles -}}
{{- $fleet := list -}}{{- $tenant := list -}}
{{- range $role, $r := $roles -}}
{{- if $r.tenant -}}{{- $tenant = append $tenant $role -}}{{- else -}}{{- $fleet = append $fleet $role -}}{{- end -}}
{{- end -}}
{{- include "accounts.checkUsers" (dict "users" .Values.users "of" "the fleet" "roles" $fleet "seen" $seen "tenant" false) -}}
{{- $tenants := dict -}}
{{- range .Values.tenants -}}
{{- $name := toString .name -}}
{{- if not (regexMatch "^[A-Za-z0-9_-]{1,64}$" $name) -}}
{{- fail (printf "tenant %q: a tenant's name is 1 to 64 of A-Z a-z 0-9 _ -" $name) -}}
{{- end -}}
{{- if hasKey $tenants $name -}}
{{- fail (printf "tenant %q is there twice: name all of its users in one place" $name) -}}
{{- end -}}
{{- $_ := set $tenants $name true -}}
{{- include "accounts.checkUsers" (dict "users" .users "of" (printf "tenant %s" $name) "roles" $tenant "seen" $seen "tenant" true) -}}
{{- end -}}
{{- end -}}

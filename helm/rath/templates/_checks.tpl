{{/* What no schema can say of values. */}}

{{/* A size in Mi or Gi, in Mi; empty for other ones. */}}
{{- define "rath.mebibytes" -}}
{{- if regexMatch "^[0-9]+(Mi|Gi)$" (toString .) -}}
{{- $n := regexFind "^[0-9]+" (toString .) | int64 -}}
{{- if hasSuffix "Gi" (toString .) -}}{{- $n = mul $n 1024 -}}{{- end -}}
{{- $n -}}
{{- end -}}
{{- end -}}

{{- define "rath.checks" -}}
{{- $nats := .Values.nats -}}
{{- if not $nats.insecure -}}
{{- if eq $nats.auth.kind "none" -}}
{{- fail "nats.auth.kind is none: everything that reaches the NATS servers could do what a node can. Name a secret in nats.auth, or agree with nats.insecure: true" -}}
{{- end -}}
{{- if contains "nats://" $nats.url -}}
{{- fail (printf "nats.url %s is without TLS: credentials and runs could be read on the way. Use tls://, or agree with nats.insecure: true" $nats.url) -}}
{{- end -}}
{{- end -}}
{{- $servers := list -}}
{{- range $nats.monitoring -}}{{- $servers = append $servers (trimSuffix "/" .) -}}{{- end -}}
{{- $servers = uniq $servers -}}
{{- if and $nats.url (or (eq $nats.durability "fsync") $servers) (lt (len $servers) (int $nats.replicas)) -}}
{{- fail (printf "nats.monitoring names %d servers, and each stream has %d replicas, each on a server of its own: name the monitoring address of every server, or set nats.replicas to what there are" (len $servers) (int $nats.replicas)) -}}
{{- end -}}
{{- if eq .Values.sandbox.backend "kubernetes" -}}
{{- if not .Values.sandbox.image -}}
{{- fail "sandbox.image is needed with sandbox.backend kubernetes: the image of the pods of sandboxes, such as debian@sha256:…" -}}
{{- end -}}
{{- if not (or .Values.serviceAccount.create .Values.serviceAccount.name) -}}
{{- fail "sandbox.backend kubernetes: every pod of the namespace would get the rights of nodes. Set serviceAccount.create, or name an account in serviceAccount.name" -}}
{{- end -}}
{{- end -}}
{{- with .Values.web -}}
{{- if .url -}}
{{- if and (hasPrefix "http://" .url) (not .insecure) -}}
{{- fail (printf "web.url %s is without TLS: tokens and cookies could be read on the way. Use https://, or agree with web.insecure: true" .url) -}}
{{- end -}}
{{- if not (or .gateways (eq $nats.auth.kind "none")) -}}
{{- fail "web.gateways is needed with web.url: the secret with the NATS credentials of each tenant's gateway, such as acme.creds" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $pools := dict -}}
{{- range include "rath.pools" . | fromJsonArray -}}
{{- if hasKey $pools .values.pool -}}
{{- fail (printf "pool %s is there twice, in node.pool and pools: each has a name of its own" .values.pool) -}}
{{- end -}}
{{- $_ := set $pools .values.pool true -}}
{{- if and $.Values.router.enabled (eq .values.pool $.Values.router.pool) -}}
{{- fail (printf "pool %s is the routers' (router.pool), whose offer of auto and fanout its nodes would replace: give the nodes' pool another name" .values.pool) -}}
{{- end -}}
{{- $name := printf "%s%s" (include "rath.fullname" $) .suffix -}}
{{- if gt (len $name) 52 -}}
{{- fail (printf "pool %s: the name of its StatefulSet, %s, has more than 52 characters: shorten it, or set fullnameOverride" .values.pool $name) -}}
{{- end -}}
{{- if and $.Values.autoscaling.enabled (gt (int .scale.minReplicas) (int .scale.maxReplicas)) -}}
{{- fail (printf "pool %s: autoscaling.minReplicas %d is more than autoscaling.maxReplicas %d" .values.pool (int .scale.minReplicas) (int .scale.maxReplicas)) -}}
{{- end -}}
{{- $limit := include "rath.mebibytes" (dig "limits" "ephemeral-storage" "" (default dict .values.resources)) -}}
{{- $store := ternary "0Mi" .values.store.size .values.store.persistent | include "rath.mebibytes" -}}
{{- $tmp := include "rath.mebibytes" .values.tmpSize -}}
{{- if and $limit $store $tmp -}}
{{- if lt (int64 $limit) (add (int64 $store) (int64 $tmp)) -}}
{{- fail (printf "pool %s: the pod would be evicted: limits.ephemeral-storage is less than store.size and tmpSize together" .values.pool) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The consumers whose lag is work for the pool of the nodes. A test of package
node compares them with those that a node makes. */}}
{{- define "rath.consumers" -}}
- {stream: TASKS, consumer: tasks}
- {stream: WORK, consumer: work-{{ .Values.node.pool }}-interactive}
- {stream: WORK, consumer: work-{{ .Values.node.pool }}-batch}
{{- end -}}

{{/* The pools that need consumers: those of this release, and others that are
named. */}}
{{- define "rath.pools" -}}
{{- $pools := list .Values.node.pool -}}
{{- if .Values.router.enabled -}}{{- $pools = append $pools .Values.router.pool -}}{{- end -}}
{{- concat $pools .Values.provision.pools | uniq | toYaml -}}
{{- end -}}

{{/* The address that KEDA asks. It looks for the server that leads a consumer by
putting the server's name before this address, so that of several servers behind
one headless service it is the service's name: nats-0.nats-headless.nats:8222
becomes nats-headless.nats:8222. */}}
{{- define "rath.scalerEndpoint" -}}
{{- $own := .Values.autoscaling.endpoint -}}
{{- $all := .Values.nats.monitoring -}}
{{- if $own -}}
{{- $own -}}
{{- else if $all -}}
{{- $first := first $all -}}
{{- $common := regexReplaceAll "^(https?://)?[^.:/]+\\." $first "${1}" -}}
{{- $same := gt (len $all) 1 -}}
{{- range $all -}}
{{- if ne (regexReplaceAll "^(https?://)?[^.:/]+\\." . "${1}") $common -}}{{- $same = false -}}{{- end -}}
{{- end -}}
{{- ternary $common $first $same -}}
{{- end -}}
{{- end -}}

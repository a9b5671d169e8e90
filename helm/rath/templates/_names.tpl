{{/* The name of everything in this release. Pods are named after it, and a pod's
name is a node's name, which holds no dots and at most 64 characters. */}}
{{- define "rath.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := .Values.fullnameOverride -}}
{{- if not $full -}}
{{- $full = ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- end -}}
{{- $full | replace "." "-" | trunc 38 | trimSuffix "-" -}}
{{- end -}}

{{/* What selects the pods of a release: never a version, selectors are for ever. */}}
{{- define "rath.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "rath.labels" -}}
{{ include "rath.selector" . }}
app.kubernetes.io/part-of: rath
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "rath.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "rath.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The image of a role, whose own settings come before the common ones:
dict "root" $ "image" .Values.node.image */}}
{{- define "rath.image" -}}
{{- $common := .root.Values.image -}}
{{- $repository := default $common.repository .image.repository -}}
{{- $tag := .image.tag -}}
{{- $digest := .image.digest -}}
{{- if not (or .image.repository $tag $digest) -}}
{{- $tag = $common.tag -}}
{{- $digest = $common.digest -}}
{{- end -}}
{{- if $digest -}}
{{- printf "%s@%s" $repository $digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .root.Chart.AppVersion $tag) -}}
{{- end -}}
{{- end -}}

{{- define "rath.gossipSecret" -}}
{{- default (printf "%s-gossip" (include "rath.fullname" .)) .Values.gossip.secret -}}
{{- end -}}

{{/* The label of this fleet: nodes with another one are refused. */}}
{{- define "rath.gossipLabel" -}}
{{- default (printf "%s/%s" .Release.Namespace (include "rath.fullname" .)) .Values.gossip.label -}}
{{- end -}}

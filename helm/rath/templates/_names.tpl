{{/* The name of everything in this release. Pods are named after it, and a pod's
name is a node's name, which holds no dots and at most 64 characters. */}}
{{- define "rath.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := .Values.fullnameOverride -}}
{{- if not $full -}}
{{- $full = ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- end -}}
{{- $full = $full | replace "." "-" -}}
{{- /* What is too long is cut, and told apart by what it was. */ -}}
{{- if gt (len $full) 38 -}}
{{- $full = printf "%s-%s" ($full | trunc 29 | trimSuffix "-") ($full | sha256sum | trunc 8) -}}
{{- end -}}
{{- $full | trimSuffix "-" -}}
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

{{/* The metadata of an object: dict "root" $ "suffix" "-node", and if it has them
"component", "labels" and "annotations". */}}
{{- define "rath.meta" -}}
name: {{ include "rath.fullname" .root }}{{ .suffix }}
namespace: {{ with get . "namespace" }}{{ quote . }}{{ else }}{{ .root.Release.Namespace }}{{ end }}
labels:
  {{- include "rath.labels" .root | nindent 2 }}
  {{- with get . "component" }}
  app.kubernetes.io/component: {{ . }}
  {{- end }}
  {{- with merge dict (default dict (get . "labels")) .root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge dict (default dict (get . "annotations")) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The suffix of what is in the namespace of sandboxes. Another release of this name, in
another namespace, may have its sandboxes there, too: they are told apart by a hash of it. */}}
{{- define "rath.sandboxSuffix" -}}
-sandbox{{ if .Values.sandbox.namespace }}-{{ .Release.Namespace | sha256sum | trunc 8 }}{{ end }}
{{- end -}}

{{- define "rath.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "rath.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The image of a role, whose own settings come before the common ones:
dict "root" $ "image" .Values.node.image "flavor" "tools" */}}
{{- define "rath.image" -}}
{{- $common := .root.Values.image -}}
{{- $repository := default $common.repository .image.repository -}}
{{- $tag := .image.tag -}}
{{- $digest := .image.digest -}}
{{- if not (or .image.repository $tag $digest) -}}
{{- $tag = default .root.Chart.AppVersion $common.tag -}}
{{- if eq .flavor $common.flavor -}}{{- $digest = $common.digest -}}{{- end -}}
{{- with .flavor -}}{{- $tag = printf "%s-%s" $tag . -}}{{- end -}}
{{- end -}}
{{- if $digest -}}
{{- printf "%s@%s" $repository $digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .root.Chart.AppVersion $tag) -}}
{{- end -}}
{{- end -}}

{{/* The fleet of this release: releases of one fleet find each other. */}}
{{- define "rath.fleet" -}}
{{- default (include "rath.fullname" .) .Values.gossip.fleet -}}
{{- end -}}

{{- define "rath.memberSelector" -}}
rath/fleet: {{ include "rath.fleet" . }}
rath/member: "true"
{{- end -}}

{{/* The StatefulSets of nodes, as JSON: that of node, and one for each of pools, in
which what a pool says takes the place of what node says. */}}
{{- define "rath.pools" -}}
{{- $all := list (dict "suffix" "-node" "component" "node" "values" .Values.node "scale" .Values.autoscaling) -}}
{{- range $pool := .Values.pools -}}
{{- $values := deepCopy $.Values.node -}}
{{- $scale := deepCopy $.Values.autoscaling -}}
{{- range $key, $value := omit $pool "name" "autoscaling" -}}
{{- if has $key (list "image" "store") -}}
{{- range $k, $v := $value -}}{{- $_ := set (get $values $key) $k $v -}}{{- end -}}
{{- else -}}
{{- $_ := set $values $key $value -}}
{{- end -}}
{{- end -}}
{{- range $k, $v := default dict (get $pool "autoscaling") -}}{{- $_ := set $scale $k $v -}}{{- end -}}
{{- $_ := set $values "pool" $pool.name -}}
{{- $all = append $all (dict "suffix" (printf "-node-%s" $pool.name) "component" (printf "node-%s" $pool.name) "values" $values "scale" $scale) -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{/* The consumers whose lag is work for the pool of the nodes. A test of package
node compares them with those that a node makes. */}}
{{- define "rath.consumers" -}}
- {stream: TASKS, consumer: tasks}
- {stream: WORK, consumer: work-{{ .Values.node.pool }}-interactive}
- {stream: WORK, consumer: work-{{ .Values.node.pool }}-batch}
{{- end -}}

{{/* The pod of a role: dict "root" $ "role" "node" "values" .Values.node */}}

{{/* Seconds from SIGTERM until a pod is killed: the steps under way may take as
long as the drain says; the margin is for what comes after them. */}}
{{- define "rath.grace" -}}
{{- add (int (default 0 (get .values "preStopSeconds"))) (int .values.drainSeconds) (int .root.Values.stopMarginSeconds) -}}
{{- end -}}

{{/* Three quarters of the memory limit for Go, so that it collects before the
kernel kills; the rest is for commands of sandboxes, which count too. Empty when
the limit is not a whole number of Mi or Gi. */}}
{{- define "rath.memoryLimit" -}}
{{- $limit := dig "limits" "memory" "" (default dict .values.resources) | toString -}}
{{- if regexMatch "^[0-9]+(Mi|Gi)$" $limit -}}
{{- $n := regexFind "^[0-9]+" $limit | int64 -}}
{{- if hasSuffix "Gi" $limit -}}{{- $n = mul $n 1024 -}}{{- end -}}
{{- div (mul $n 3) 4 -}}MiB
{{- end -}}
{{- end -}}

{{- define "rath.args" -}}
{{- $v := .root.Values -}}
- -nats={{ required "nats.url is required: the address of the NATS servers, such as nats://nats.nats:4222" $v.nats.url }}
{{- if eq $v.nats.auth.kind "creds" }}
- -creds=/etc/rath/nats/{{ $v.nats.auth.credsKey }}
{{- end }}
{{- if $v.nats.ca.secret }}
- -ca=/etc/rath/ca/{{ $v.nats.ca.key }}
{{- end }}
- -level={{ $v.nats.durability }}
- -replicas={{ int $v.nats.replicas }}
{{- range $v.nats.monitoring }}
- -monitor={{ . }}
{{- end }}
- -store=/var/lib/rath/store
- -health=0.0.0.0:8081
- -drain={{ int .values.drainSeconds }}s
- -slots={{ int .values.slots }}
{{- if .values.model }}
- -model={{ .values.model }}
{{- end }}
{{- if get .values "unsafe" }}
- -unsafe
{{- end }}
- -pool={{ .values.pool }}
- -name=$(POD_NAME)
- -gossip=$(POD_IP)
- -join={{ include "rath.fullname" .root }}-gossip.{{ .root.Release.Namespace }}.svc
- -gossip-key-file=/etc/rath/gossip/{{ $v.gossip.secretKey }}
- -label={{ include "rath.gossipLabel" .root }}
{{- if eq .role "router" }}
- -http=0.0.0.0:8080
{{- else if $v.router.enabled }}
- -routers
{{- end }}
{{- range .values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "rath.env" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
{{- with include "rath.memoryLimit" . }}
- name: GOMEMLIMIT
  value: {{ . }}
{{- end }}
{{- with include "rath.natsUser" (dict "auth" .root.Values.nats.auth) }}
{{ . | trim }}
{{- end }}
{{- with .values.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What Pod Security "restricted" asks of a container, and a root file system
that cannot be written. */}}
{{- define "rath.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "rath.podSecurity" -}}
runAsNonRoot: true
{{- with get .Values.security "runAsUser" }}
runAsUser: {{ int64 . }}
{{- end }}
{{- with get .Values.security "runAsGroup" }}
runAsGroup: {{ int64 . }}
{{- end }}
{{- with get .Values.security "fsGroup" }}
fsGroup: {{ int64 . }}
fsGroupChangePolicy: OnRootMismatch
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* How to log in at NATS, and whom to believe there:
dict "auth" .Values.nats.auth "ca" .Values.nats.ca */}}
{{- define "rath.natsMounts" -}}
{{- if eq .auth.kind "creds" }}
- name: nats
  mountPath: /etc/rath/nats
  readOnly: true
{{- end }}
{{- if .ca.secret }}
- name: ca
  mountPath: /etc/rath/ca
  readOnly: true
{{- end }}
{{- end -}}

{{- define "rath.natsVolumes" -}}
{{- if eq .auth.kind "creds" }}
- name: nats
  secret:
    secretName: {{ .auth.secret }}
    defaultMode: 0440
{{- end }}
{{- if .ca.secret }}
- name: ca
  secret:
    secretName: {{ .ca.secret }}
    defaultMode: 0440
{{- end }}
{{- end -}}

{{- define "rath.natsUser" -}}
{{- if eq .auth.kind "user" }}
- name: NATS_USER
  valueFrom:
    secretKeyRef:
      name: {{ .auth.secret }}
      key: {{ .auth.userKey }}
- name: NATS_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ .auth.secret }}
      key: {{ .auth.passwordKey }}
{{- end }}
{{- end -}}

{{- define "rath.pod" -}}
metadata:
  # Without the chart's version, so that a chart that changes nothing about the
  # pods does not restart them.
  labels:
    {{- include "rath.selector" .root | nindent 4 }}
    app.kubernetes.io/part-of: rath
    app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
    app.kubernetes.io/component: {{ .role }}
    rath/member: "true"
    {{- with .values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    kubectl.kubernetes.io/default-container: {{ .role }}
    {{- with .values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "rath.serviceAccount" .root }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  # The first process of the pod reaps what commands in sandboxes leave behind.
  shareProcessNamespace: true
  terminationGracePeriodSeconds: {{ include "rath.grace" . }}
  securityContext:
    {{- include "rath.podSecurity" .root | nindent 4 }}
  {{- with .root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    {{- $root := .root }}
    {{- $role := .role }}
    {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - topologyKey: {{ . }}
      maxSkew: 1
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "rath.selector" $root | nindent 10 }}
          app.kubernetes.io/component: {{ $role }}
    {{- end }}
  containers:
    - name: {{ .role }}
      image: {{ include "rath.image" (dict "root" .root "image" .values.image) }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      command:
        {{- toYaml .values.command | nindent 8 }}
      args:
        {{- include "rath.args" . | nindent 8 }}
      env:
        {{- include "rath.env" . | nindent 8 }}
      {{- with .values.envFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - name: health
          containerPort: 8081
        {{- if eq .role "router" }}
        - name: http
          containerPort: 8080
        {{- end }}
        - name: gossip-tcp
          containerPort: 7946
        - name: gossip-udp
          containerPort: 7946
          protocol: UDP
      # Both ask whether the process can work, never whether NATS is there: a
      # restart brings no server back.
      startupProbe:
        httpGet:
          path: /livez
          port: health
        periodSeconds: 2
        timeoutSeconds: 5
        failureThreshold: 30
      livenessProbe:
        httpGet:
          path: /livez
          port: health
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet:
          path: /readyz
          port: health
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 2
      {{- with get .values "preStopSeconds" }}
      # Requests find another pod before this one stops to take them.
      lifecycle:
        preStop:
          sleep:
            seconds: {{ int . }}
      {{- end }}
      {{- with .values.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- include "rath.containerSecurity" .root | nindent 8 }}
      volumeMounts:
        - name: store
          mountPath: /var/lib/rath
        - name: tmp
          mountPath: /tmp
        - name: gossip
          mountPath: /etc/rath/gossip
          readOnly: true
        {{- with include "rath.natsMounts" (dict "auth" .root.Values.nats.auth "ca" .root.Values.nats.ca) }}
        {{- . | trim | nindent 8 }}
        {{- end }}
  volumes:
    - name: tmp
      emptyDir: {}
    {{- if not (dig "store" "persistent" false .values) }}
    - name: store
      emptyDir:
        sizeLimit: {{ dig "store" "size" "1Gi" .values }}
    {{- end }}
    - name: gossip
      secret:
        secretName: {{ include "rath.gossipSecret" .root }}
        defaultMode: 0440
    {{- with include "rath.natsVolumes" (dict "auth" .root.Values.nats.auth "ca" .root.Values.nats.ca) }}
    {{- . | trim | nindent 4 }}
    {{- end }}
{{- end -}}

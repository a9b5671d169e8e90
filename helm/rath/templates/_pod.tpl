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
{{- with include "rath.mebibytes" (dig "limits" "memory" "" (default dict .values.resources)) -}}
{{- div (mul (int64 .) 3) 4 -}}MiB
{{- end -}}
{{- end -}}

{{- define "rath.args" -}}
{{- $v := .root.Values -}}
- -nats={{ required "nats.url is required: the address of the NATS servers, such as tls://nats.nats:4222" $v.nats.url }}
{{- if eq $v.nats.auth.kind "creds" }}
- -creds=/etc/rath/nats/{{ $v.nats.auth.credsKey }}
{{- end }}
{{- if $v.signing.secret }}
- -signing-key=/etc/rath/signing/{{ $v.signing.key }}
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
{{- with default $v.model.name .values.model }}
- -model={{ . }}
{{- end }}
{{- if get .values "unsafe" }}
- -unsafe
{{- end }}
{{- with get .values "sandboxLimits" }}
- -sandbox-limits={{ . }}
{{- end }}
{{- if eq .role "node" }}
{{- with $v.sandbox.network }}
- -sandbox-network={{ . }}
{{- end }}
{{- with $v.sandbox.private }}
- -sandbox-private={{ join "," . }}
{{- end }}
{{- end }}
- -pool={{ .values.pool }}
- -name=$(POD_NAME)
- -gossip=$(POD_IP)
- -join={{ include "rath.fullname" .root }}-gossip.{{ .root.Release.Namespace }}.svc
- -gossip-key-file=/etc/rath/gossip/{{ $v.gossip.secretKey }}
- -label={{ .root.Release.Namespace }}/{{ include "rath.fleet" .root }}
{{- if eq .role "router" }}
{{- with $v.web.url }}
- -http=0.0.0.0:8080
- -http-url={{ . }}
{{- if $v.web.insecure }}
- -http-insecure
{{- end }}
{{- if $v.web.gateways }}
- -gateways=/etc/rath/gateways
{{- end }}
{{- with $v.web.oidc }}
{{- if .secret }}
- -oidc=/etc/rath/oidc/{{ .key }}
{{- end }}
{{- end }}
{{- end }}
{{- else }}
{{- if $v.router.enabled }}
- -routers
{{- end }}
{{- if $v.agents.secret }}
- -agents=/etc/rath/agents
{{- end }}
{{- if $v.checks.secret }}
- -checks=/etc/rath/checks/{{ $v.checks.key }}
{{- end }}
{{- if $v.rules.secret }}
- -rules=/etc/rath/rules/{{ $v.rules.key }}
{{- end }}
{{- if $v.targets.secret }}
- -targets=/etc/rath/targets/{{ $v.targets.key }}
{{- end }}
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
{{ include "rath.clientEnv" (dict "root" .root "auth" (include "rath.auth" . | fromJson)) }}
{{- if eq .role "node" }}
{{- with .root.Values.sandbox.secrets }}
- name: RATH_SANDBOX_SECRETS
  value: {{ join "\n" . | quote }}
{{- end }}
{{- with .root.Values.sandbox }}
{{- if eq .backend "kubernetes" }}
# Not as flags, so that "rath doctor" in the pod sees them.
- name: RATH_SANDBOX_KUBERNETES_IMAGE
  value: {{ quote .image }}
- name: RATH_SANDBOX_KUBERNETES_NODE_IMAGE
  value: {{ include "rath.image" (dict "root" $.root "image" $.values.image "flavor" $.root.Values.image.flavor) | quote }}
{{- with .namespace }}
- name: RATH_SANDBOX_KUBERNETES_NAMESPACE
  value: {{ quote . }}
{{- end }}
{{- with .mode }}
- name: RATH_SANDBOX_KUBERNETES_MODE
  value: {{ quote . }}
{{- end }}
{{- with .runtimeClass }}
- name: RATH_SANDBOX_KUBERNETES_RUNTIME_CLASS
  value: {{ quote . }}
{{- end }}
{{- with $.root.Values.image.pullSecrets }}
- name: RATH_SANDBOX_KUBERNETES_PULL_SECRETS
  value: {{ range $i, $s := . }}{{ if $i }},{{ end }}{{ $s.name }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- /* A role's own variable takes the place of the common one. */ -}}
{{- $own := list -}}
{{- range .values.env -}}{{- $own = append $own .name -}}{{- end -}}
{{- $env := list -}}
{{- range .root.Values.model.env -}}
{{- if not (has .name $own) -}}{{- $env = append $env . -}}{{- end -}}
{{- end -}}
{{- with concat $env .values.env }}
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

{{/* What the command line needs in a pod to find the fleet:
dict "root" $ "auth" .Values.nats.auth */}}
{{- define "rath.clientEnv" -}}
- name: RATH_SERVER
  value: {{ required "nats.url is required: the address of the NATS servers, such as tls://nats.nats:4222" .root.Values.nats.url | quote }}
# The directory of a store that is not there: the server is asked.
- name: RATH_STORE
  value: /tmp/none
{{- if eq .auth.kind "creds" }}
- name: RATH_CREDS
  value: /etc/rath/nats/{{ .auth.credsKey }}
{{- end }}
{{- with .root.Values.nats.ca }}
{{- if .secret }}
- name: NATS_CA
  value: /etc/rath/ca/{{ .key }}
{{- end }}
{{- end }}
{{- with include "rath.natsUser" . }}
{{ . | trim }}
{{- end }}
{{- end -}}

{{/* The secrets that pods read, so that a changed one restarts them; empty where
there is no cluster to ask: dict "root" $ "names" (list …) */}}
{{- define "rath.secretsSum" -}}
{{- $found := list -}}
{{- range compact .names -}}
{{- with lookup "v1" "Secret" $.root.Release.Namespace . -}}
{{- $found = append $found (toJson .data) -}}
{{- end -}}
{{- end -}}
{{- with $found -}}{{- join "\n" . | sha256sum -}}{{- end -}}
{{- end -}}

{{/* Where a pod runs: the values of a role. */}}
{{- define "rath.placement" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The metadata of such a pod: dict "root" $ "component" "toolbox" */}}
{{- define "rath.operatorMeta" -}}
labels:
  {{- include "rath.selector" .root | nindent 2 }}
  app.kubernetes.io/part-of: rath
  app.kubernetes.io/component: {{ .component }}
  {{- with merge dict .root.Values.operator.podLabels .root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge dict .root.Values.operator.podAnnotations .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The pod of an operator, who runs the command line: dict "root" $ "component"
"toolbox" "auth" .Values.operator.auth "image" … "command" (list …), and if it has
them "args" and "account". */}}
{{- define "rath.operatorPod" -}}
{{- with get . "account" }}
serviceAccountName: {{ . }}
{{- end }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- include "rath.podSecurity" .root | nindent 2 }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "rath.placement" .root.Values.operator | trim }}
{{ . }}
{{- end }}
containers:
  - name: {{ .component }}
    image: {{ .image }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    command:
      {{- toYaml .command | nindent 6 }}
    {{- with get . "args" }}
    args:
      {{- . | trim | nindent 6 }}
    {{- end }}
    # What it said last is the reason that Kubernetes shows.
    terminationMessagePolicy: FallbackToLogsOnError
    env:
      {{- include "rath.clientEnv" . | nindent 6 }}
    {{- with .root.Values.operator.resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- include "rath.containerSecurity" .root | nindent 6 }}
    volumeMounts:
      - name: tmp
        mountPath: /tmp
      {{- with include "rath.natsMounts" (dict "auth" .auth "ca" .root.Values.nats.ca) }}
      {{- . | trim | nindent 6 }}
      {{- end }}
volumes:
  - name: tmp
    emptyDir:
      sizeLimit: 64Mi
  {{- with include "rath.natsVolumes" (dict "auth" .auth "ca" .root.Values.nats.ca) }}
  {{- . | trim | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* How the pods of a role log in at NATS: routers that serve the web read tokens, too. */}}
{{- define "rath.auth" -}}
{{- $auth := deepCopy .root.Values.nats.auth -}}
{{- if and (eq .role "router") .root.Values.web.url .root.Values.web.natsSecret -}}
{{- $_ := set $auth "secret" .root.Values.web.natsSecret -}}
{{- end -}}
{{- toJson $auth -}}
{{- end -}}

{{/* The secrets of a role that are directories, as a list. */}}
{{- define "rath.roleSecrets" -}}
{{- $web := .root.Values.web -}}
{{- $all := list -}}
{{- if eq .role "node" -}}
{{- with .root.Values.agents.secret -}}{{- $all = append $all (dict "name" "agents" "secret" .) -}}{{- end -}}
{{- with .root.Values.checks.secret -}}{{- $all = append $all (dict "name" "checks" "secret" .) -}}{{- end -}}
{{- with .root.Values.rules.secret -}}{{- $all = append $all (dict "name" "rules" "secret" .) -}}{{- end -}}
{{- with .root.Values.targets.secret -}}{{- $all = append $all (dict "name" "targets" "secret" .) -}}{{- end -}}
{{- end -}}
{{- if and (eq .role "router") $web.url -}}
{{- with $web.gateways -}}{{- $all = append $all (dict "name" "gateways" "secret" .) -}}{{- end -}}
{{- with $web.oidc.secret -}}{{- $all = append $all (dict "name" "oidc" "secret" .) -}}{{- end -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{- define "rath.pod" -}}
metadata:
  # Without the chart's version, so that a chart that changes nothing about the
  # pods does not restart them.
  labels:
    {{- include "rath.selector" .root | nindent 4 }}
    app.kubernetes.io/part-of: rath
    app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
    app.kubernetes.io/component: {{ .component }}
    {{- include "rath.memberSelector" .root | nindent 4 }}
    {{- with merge dict .values.podLabels .root.Values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    kubectl.kubernetes.io/default-container: {{ .role }}
    {{- with include "rath.secretsSum" (dict "root" .root "names" (list (include "rath.auth" . | fromJson).secret .root.Values.nats.ca.secret .root.Values.gossip.secret .root.Values.signing.secret (ternary .root.Values.web.gateways "" (eq .role "router")) (ternary .root.Values.web.oidc.secret "" (eq .role "router")) (ternary .root.Values.targets.secret "" (eq .role "node")) (ternary .root.Values.rules.secret "" (eq .role "node")) (ternary .root.Values.agents.secret "" (eq .role "node")) (ternary .root.Values.checks.secret "" (eq .role "node")))) }}
    checksum/secrets: {{ . }}
    {{- end }}
    {{- with merge dict .values.podAnnotations .root.Values.commonAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "rath.serviceAccount" .root }}
  automountServiceAccountToken: {{ and (eq .role "node") (eq .root.Values.sandbox.backend "kubernetes") }}
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
  {{- with include "rath.placement" .values | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  topologySpreadConstraints:
    {{- $root := .root }}
    {{- $component := .component }}
    {{- range .values.topologySpread }}
    - {{- toYaml (omit . "labelSelector") | nindent 6 }}
      labelSelector:
        matchLabels:
          {{- include "rath.selector" $root | nindent 10 }}
          app.kubernetes.io/component: {{ $component }}
    {{- else }}
    {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - topologyKey: {{ . }}
      maxSkew: 1
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "rath.selector" $root | nindent 10 }}
          app.kubernetes.io/component: {{ $component }}
    {{- end }}
    {{- end }}
  {{- with .values.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ .role }}
      image: {{ include "rath.image" (dict "root" .root "image" .values.image "flavor" .root.Values.image.flavor) }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      command:
        {{- toYaml .values.command | nindent 8 }}
      args:
        {{- include "rath.args" . | nindent 8 }}
      env:
        {{- include "rath.env" . | nindent 8 }}
      {{- with concat .root.Values.model.envFrom .values.envFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - name: health
          containerPort: 8081
        {{- if and (eq .role "router") .root.Values.web.url }}
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
        periodSeconds: 2
        timeoutSeconds: 5
        failureThreshold: 5
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
        {{- if .root.Values.signing.secret }}
        - name: signing
          mountPath: /etc/rath/signing
          readOnly: true
        {{- end }}
        {{- range include "rath.roleSecrets" . | fromJsonArray }}
        - name: {{ .name }}
          mountPath: /etc/rath/{{ .name }}
          readOnly: true
        {{- end }}
        {{- with include "rath.natsMounts" (dict "auth" .root.Values.nats.auth "ca" .root.Values.nats.ca) }}
        {{- . | trim | nindent 8 }}
        {{- end }}
        {{- with .values.volumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- with .values.sidecars }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    - name: tmp
      emptyDir:
        sizeLimit: {{ .values.tmpSize }}
    {{- if not (dig "store" "persistent" false .values) }}
    - name: store
      emptyDir:
        sizeLimit: {{ dig "store" "size" "1Gi" .values }}
    {{- end }}
    - name: gossip
      secret:
        secretName: {{ .root.Values.gossip.secret }}
        defaultMode: 0440
    {{- if .root.Values.signing.secret }}
    - name: signing
      secret:
        secretName: {{ .root.Values.signing.secret }}
        defaultMode: 0440
    {{- end }}
    {{- range include "rath.roleSecrets" . | fromJsonArray }}
    - name: {{ .name }}
      secret:
        secretName: {{ .secret }}
        defaultMode: 0440
    {{- end }}
    {{- with include "rath.natsVolumes" (dict "auth" (include "rath.auth" . | fromJson) "ca" .root.Values.nats.ca) }}
    {{- . | trim | nindent 4 }}
    {{- end }}
    {{- with .values.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

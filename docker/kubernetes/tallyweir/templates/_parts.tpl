{{/* Names and blocks that several objects share. */}}

{{- define "tallyweir.name" -}}
{{- $name := .Release.Name -}}
{{- if not (contains .Chart.Name $name) }}{{ $name = printf "%s-%s" $name .Chart.Name }}{{ end -}}
{{- $name | trunc 24 | trimSuffix "-" -}}
{{- end }}

{{/* What selects the pods of a component: (list $ "ingest"). */}}
{{- define "tallyweir.selector" -}}
{{- $top := index . 0 -}}
app.kubernetes.io/name: {{ $top.Chart.Name }}
app.kubernetes.io/instance: {{ $top.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "tallyweir.labels" -}}
{{- $top := index . 0 -}}
{{ include "tallyweir.selector" . }}
app.kubernetes.io/version: {{ $top.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $top.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $top.Chart.Name $top.Chart.Version | quote }}
{{- end }}

{{- define "tallyweir.image" -}}
{{- $top := index . 0 -}}
{{ $top.Values.image.registry }}{{ index . 1 }}:{{ $top.Values.image.tag | default $top.Chart.AppVersion }}
{{- end }}

{{/* The "restricted" level of the pod security standards, for a pod and a container. */}}
{{- define "tallyweir.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
# So that the process may read its Secret.
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "tallyweir.containerSecurity" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "tallyweir.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* How a process finds Kafka and its databases: (list $ "home" "databases" "kafka"). */}}
{{- define "tallyweir.environment" -}}
{{- $top := index . 0 -}}
{{- if has "home" . }}
- {name: TALLYWEIR_HOME_DSN_FILE, value: /run/secrets/tallyweir/home_dsn}
{{- end }}
{{- if and (has "databases" .) $top.Values.databases }}
- {name: TALLYWEIR_DATABASES_FILE, value: /run/secrets/tallyweir/databases}
{{- end }}
{{- if has "kafka" . }}
- {name: TALLYWEIR_KAFKA_BOOTSTRAP, value: {{ required "kafka.bootstrap is needed" $top.Values.kafka.bootstrap | quote }}}
{{- if $top.Values.kafka.secured }}
- {name: TALLYWEIR_KAFKA_CONFIG, value: /run/secrets/tallyweir/kafka.properties}
{{- end }}
{{- end }}
{{- if has "metrics" . }}
- {name: TALLYWEIR_METRICS_PORT, value: "8081"}
- {name: TALLYWEIR_METRICS_HOST, value: 0.0.0.0}
{{- end }}
{{- end }}

{{/* By which a Service is asked, and through an Ingress: (list $ name names). */}}
{{- define "tallyweir.publicNames" -}}
{{- $name := index . 1 -}}
{{- $local := printf "%s.%s" $name (index . 0).Release.Namespace -}}
{{- $names := list $name $local (printf "%s.svc" $local) (printf "%s.svc.cluster.local" $local) -}}
- {name: TALLYWEIR_PUBLIC_NAMES, value: {{ concat $names (index . 2) | join " " | quote }}}
{{- end }}

{{- define "tallyweir.secretVolume" -}}
- name: secrets
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}

{{- define "tallyweir.secretMount" -}}
- {name: secrets, mountPath: /run/secrets/tallyweir, readOnly: true}
{{- end }}

{{- define "tallyweir.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: {{ . }}}
  periodSeconds: 5
  # A JVM that starts on a busy node.
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: {{ . }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: {{ . }}}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{/* Egress to where the values say: (dict "to" list "ports" list). */}}
{{- define "tallyweir.egress" -}}
- ports:
    {{- range .ports }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
  {{- with .to }}
  to: {{ toJson . }}
  {{- end }}
{{- end }}
